// Package load makes the calls of the Go clients and prints what they cost.
package load

import (
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func processorSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

// phase makes calls, so many at a time, and returns how many were answered wrongly.
func phase(call func(string) bool, from, calls, inFlight int64) int64 {
	var next, wrong atomic.Int64
	next.Store(from)
	var workers sync.WaitGroup
	for range inFlight {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for {
				number := next.Add(1) - 1
				if number >= from+calls {
					return
				}
				if !call(fmt.Sprintf("%012d:%s", number, strings.Repeat("x", 51))) {
					wrong.Add(1)
				}
			}
		}()
	}
	workers.Wait()
	return wrong.Load()
}

// Run reads CALLS WARMUP IN_FLIGHT from the command line, makes the calls, and prints a line of
// JSON: calls, wrong answers, seconds, processor seconds.
func Run(call func(string) bool) {
	var numbers [3]int64
	for n := range numbers {
		value, err := strconv.ParseInt(os.Args[1+n], 10, 64)
		if err != nil {
			log.Fatal(err)
		}
		numbers[n] = value
	}
	calls, warmup, inFlight := numbers[0], numbers[1], numbers[2]
	wrong := phase(call, 0, warmup, inFlight)
	processor, began := processorSeconds(), time.Now()
	wrong += phase(call, warmup, calls, inFlight)
	seconds := time.Since(began).Seconds()
	processor = processorSeconds() - processor
	fmt.Printf("{\"calls\": %d, \"wrong\": %d, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
		calls, wrong, seconds, processor)
}
