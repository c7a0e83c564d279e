/* A server started as a child, with pipes on its stdin and stdout. */
#ifndef BENCH_CHILD_H
#define BENCH_CHILD_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "clock.h"

typedef struct {
    pid_t pid;
    int input;  /* our end of its stdin, non-blocking */
    int output; /* our end of its stdout, non-blocking */
    uint64_t spawned_at;
} child_process;

/* Becomes the command; tells the errno through `failure` if that cannot be. */
static void child_exec(char **command, const int input[2], const int output[2], int failure) {
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (dup2(input[0], STDIN_FILENO) >= 0 && dup2(output[1], STDOUT_FILENO) >= 0) {
        if (input[0] > STDERR_FILENO) close(input[0]);
        if (output[1] > STDERR_FILENO) close(output[1]);
        execvp(command[0], command);
    }
    int error = errno;
    _exit(write(failure, &error, sizeof error) < 0 ? 126 : 127);
}

/* Starts the command; 0, or the errno of what failed. */
static int child_spawn(child_process *c, char **command) {
    int input[2], output[2], failure[2], error = 0;
    if (pipe(input) != 0 || pipe(output) != 0 || pipe(failure) != 0) return errno;
    const int mine[] = {input[1], output[0], failure[0], failure[1]};
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++) fcntl(mine[i], F_SETFD, FD_CLOEXEC);
    c->spawned_at = now();
    c->pid = fork();
    if (c->pid < 0) return errno;
    if (c->pid == 0) child_exec(command, input, output, failure[1]);
    close(input[0]);
    close(output[1]);
    close(failure[1]);
    c->input = input[1];
    c->output = output[0];
    ssize_t n;
    do n = read(failure[0], &error, sizeof error);
    while (n < 0 && errno == EINTR);
    close(failure[0]);
    if (n == (ssize_t)sizeof error) {
        waitpid(c->pid, NULL, 0);
        return error;
    }
    fcntl(c->input, F_SETFL, fcntl(c->input, F_GETFL) | O_NONBLOCK);
    fcntl(c->output, F_SETFL, fcntl(c->output, F_GETFL) | O_NONBLOCK);
    return 0;
}

/* Waits up to `limit` seconds; false if the child still runs. */
static bool child_wait(const child_process *c, double limit, int *status, struct rusage *usage) {
    const uint64_t end = now() + (uint64_t)(limit * 1e9);
    for (;;) {
        pid_t pid = wait4(c->pid, status, WNOHANG, usage);
        if (pid == c->pid || (pid < 0 && errno == ECHILD)) return true;
        if (now() >= end) return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

#endif
