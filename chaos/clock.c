/* Moves the clock of one process: CLOCK_REALTIME plus the seconds that the file $CHAOS_CLOCK holds as text.
   The file is looked at once in 10 ms of monotonic time; without it the clock is as it is. Waits until a point of
   that clock are moved back, since the kernel knows nothing of it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static long long looked_at;
static long offset;

static long shift(void) {
    struct timespec now;
    if (!real_clock_gettime) real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_clock_gettime(CLOCK_MONOTONIC, &now);
    long long tick = now.tv_sec * 100LL + now.tv_nsec / 10000000;
    if (tick != looked_at) {
        looked_at = tick;
        const char *path = getenv("CHAOS_CLOCK");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        char text[32] = {0};
        offset = file >= 0 && read(file, text, sizeof text - 1) > 0 ? atol(text) : 0;
        if (file >= 0) close(file);
    }
    return offset;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long moved = shift();
    int result = real_clock_gettime(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += moved;
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *where) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (where) *where = now.tv_sec;
    return now.tv_sec;
}

/* A point in time as the kernel sees it. A point of the monotonic clock is a small number and stays as it is. */
static struct timespec real(const struct timespec *until) {
    struct timespec moved = *until;
    if (moved.tv_sec > 1000000000) moved.tv_sec -= shift();
    return moved;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!wait) wait = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec moved = real(until);
    return wait(condition, mutex, &moved);
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until) {
    static int (*wait)(cnd_t *, mtx_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "cnd_timedwait");
    struct timespec moved = real(until);
    return wait(condition, mutex, &moved);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*wait)(sem_t *, const struct timespec *);
    if (!wait) wait = dlsym(RTLD_NEXT, "sem_timedwait");
    struct timespec moved = real(until);
    return wait(semaphore, &moved);
}
