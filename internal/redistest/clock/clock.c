/*
 * A clock that a test can move. Loaded before the C library (LD_PRELOAD), it answers the questions for the
 * time of day with the system's time plus an offset: eight bytes in the file that SASH_CLOCK names, a
 * signed number of nanoseconds in the machine's byte order. The file is mapped, so an offset that is
 * written counts from the next time on that the server waits for requests: a script before that has one clock,
 * for the life that Redis 7.0 gives a key in mid-script would end at once by another. Clocks that are not of
 * the day, which timeouts are measured with, stay as they are.
 *
 * It asks the kernel itself: to look for the C library's functions (dlsym) takes memory, and a program
 * that brings its own allocator may ask for the time while that is being set up.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *offset;
static volatile int64_t moved;

__attribute__((constructor)) static void map_offset(void) {
	const char *name = getenv("SASH_CLOCK");
	int fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	if (fd < 0)
		return;
	void *at = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		offset = at;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int err = (int)syscall(SYS_clock_gettime, id, ts);
	if (err || !offset || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE))
		return err;
	int64_t by = moved, ns = ts->tv_nsec + by % 1000000000;
	ts->tv_sec += by / 1000000000;
	if (ns < 0) {
		ns += 1000000000;
		ts->tv_sec--;
	} else if (ns >= 1000000000) {
		ns -= 1000000000;
		ts->tv_sec++;
	}
	ts->tv_nsec = ns;
	return 0;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
	int n = (int)syscall(SYS_epoll_pwait, fd, events, most, timeout, NULL, 8);
	if (offset)
		moved = *offset;
	return n;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec ts;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &ts))
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts))
		return -1;
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
