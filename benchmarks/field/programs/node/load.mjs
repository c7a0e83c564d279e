// The calls of the Node clients, and what they cost.
//
// load(call): reads CALLS WARMUP IN_FLIGHT from the command line, makes the calls, and prints a line
// of JSON: calls, wrong answers, seconds, processor seconds.

async function phase(call, from, calls, inFlight) {
  let next = from;
  let wrong = 0;
  async function worker() {
    while (next < from + calls) {
      const text = `${String(next++).padStart(12, '0')}:${'x'.repeat(51)}`;
      const result = await call(text).catch(() => undefined);
      if (result === undefined || result.isError || result.content?.[0]?.text !== text) wrong++;
    }
  }
  await Promise.all(Array.from({ length: inFlight }, worker));
  return wrong;
}

export async function load(call) {
  const [calls, warmup, inFlight] = process.argv.slice(2, 5).map(Number);
  let wrong = await phase(call, 0, warmup, inFlight);
  const processor = process.cpuUsage();
  const began = process.hrtime.bigint();
  wrong += await phase(call, warmup, calls, inFlight);
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  const used = process.cpuUsage(processor);
  const cpu_seconds = (used.user + used.system) / 1e6;
  console.log(JSON.stringify({ calls, wrong, seconds, cpu_seconds }));
}
