/* What the echo servers on a socket share: listening, and the loop. */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include "conn.h"

/* Deals with what a connection has brought; false when it is over. */
static bool on_input(conn *c);

static int listen_here(uint16_t *port) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0) {
        perror("listen");
        exit(2);
    }
    *port = ntohs(at.sin_port);
    return fd;
}

static void accept_all(int listener, conn_state state) {
    const int on = 1;
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        conn *c = calloc(1, sizeof *c);
        if (c == NULL) exit(2);
        c->fd = fd;
        c->state = state;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

/* Listens on a port of its own choice on 127.0.0.1, prints it, and serves until end of input.
 * A connection begins in `state`. */
static int serve(conn_state state) {
    uint16_t port;
    char text[64];
    conn listener = {.fd = listen_here(&port)}, input = {.fd = STDIN_FILENO};
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener.fd, &event);
    event.data.ptr = &input;
    epoll_ctl(poller, EPOLL_CTL_ADD, input.fd, &event);
    printf("%u\n", (unsigned)port);
    fflush(stdout);
    for (;;) {
        struct epoll_event events[256];
        const int n = epoll_wait(poller, events, 256, -1);
        if (n < 0 && errno != EINTR) return 1;
        for (int i = 0; i < n; i++) {
            conn *c = events[i].data.ptr;
            if (c == &listener) {
                accept_all(listener.fd, state);
            } else if (c == &input) {
                if (read(STDIN_FILENO, text, sizeof text) <= 0) return 0;
            } else if ((events[i].events & EPOLLOUT) && conn_flush(c) != NULL) {
                conn_forget(c);
                free(c);
            } else if ((events[i].events & ~(uint32_t)EPOLLOUT) && !on_input(c)) {
                conn_forget(c);
                free(c);
            }
        }
    }
}

#endif
