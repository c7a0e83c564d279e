/* One connection of the load generators over TCP: opening, writing, reading bytes. */
#ifndef BENCH_CONN_H
#define BENCH_CONN_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bytes.h"

typedef enum { CLOSED, UPGRADING, GREETING, LISTING, READY } conn_state;

typedef struct {
    int fd;
    conn_state state;
    bool writing; /* the poller also waits for room to write */
    uint32_t serial;
    char key[24]; /* of WebSocket's opening handshake */
    bytes in, out;
} conn;

static int poller = -1;
static uint64_t bytes_in, bytes_out;

static inline void conn_forget(conn *c) {
    if (c->fd >= 0) close(c->fd);
    free(c->in.data);
    free(c->out.data);
    c->in = c->out = (bytes){0};
    c->fd = -1;
    c->state = CLOSED;
    c->writing = false;
}

/* Leaves without a word; `reset`: with an RST, and what is unsent is thrown away. */
static inline void conn_leave(conn *c, bool reset) {
    if (reset) {
        const struct linger none = {1, 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    }
    conn_forget(c);
}

/* Connects to a port of this machine from 127.0.0.`source` and gives the socket to the poller;
 * NULL or why not. */
static inline const char *conn_connect(conn *c, uint16_t port, unsigned source) {
    const int on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from.sin_addr.s_addr = htonl(0x7f000000 + source);
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return strerror(errno);
    if (source > 1) {
        setsockopt(c->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (bind(c->fd, (struct sockaddr *)&from, sizeof from) != 0) return strerror(errno);
    }
    while (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0) {
        if (errno != EINTR) return strerror(errno);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    /* The system's default may pace what is sent for a network: BBR does. */
    setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    return epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event) == 0 ? NULL : strerror(errno);
}

/* Hands what is queued to the kernel; NULL or why it cannot be. */
static inline const char *conn_flush(conn *c) {
    while (bytes_used(&c->out) > 0) {
        ssize_t n = send(c->fd, c->out.data + c->out.head, bytes_used(&c->out), MSG_NOSIGNAL);
        if (n > 0) {
            bytes_out += (uint64_t)n;
            bytes_consume(&c->out, (size_t)n);
        } else if (n < 0 && errno == EAGAIN) {
            break;
        } else if (n < 0 && errno != EINTR) {
            return "the server closed the connection";
        }
    }
    const bool rest = bytes_used(&c->out) > 0;
    if (rest != c->writing) {
        struct epoll_event event = {.events = EPOLLIN | (rest ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
        c->writing = rest;
    }
    return NULL;
}

/* Reads once; *got is false if nothing was there.  NULL or why no more can come. */
static inline const char *conn_read(conn *c, bool *got) {
    *got = false;
    bytes_reserve(&c->in, 262144);
    ssize_t n = recv(c->fd, c->in.data + c->in.tail, c->in.size - c->in.tail, 0);
    if (n > 0) {
        c->in.tail += (size_t)n;
        bytes_in += (uint64_t)n;
        *got = true;
        return NULL;
    }
    if (n == 0 || errno == ECONNRESET) return "the server closed the connection";
    return errno == EAGAIN || errno == EINTR ? NULL : strerror(errno);
}

#endif
