//go:build ignore
/* SPDX-License-Identifier: Apache-2.0 */

/* Looks up hosts by the C library, and takes the time of each call:
 *
 *	resolve [-t] CALL HOST ...
 *
 * one after the other or, with -t, each in a thread of its own. It speaks as a
 * child of internal/lab does: JSON on standard output, and it waits for a line
 * on standard input. It needs no headers, so that it can be linked with any C
 * library: with musl's by
 *
 *	cc -DSTART -fno-stack-protector -nostdlib -o resolve resolve.c ld-musl-x86_64.so.1
 */
struct timespec {
	long sec, nsec;
};
int clock_gettime(int, struct timespec *);
int getaddrinfo(const char *, const char *, const void *, void **);
void *gethostbyname(const char *), *gethostbyname2(const char *, int), *gethostbyaddr(const void *, unsigned, int);
int gethostbyname_r(const char *, void *, char *, unsigned long, void **, int *);
int gethostbyname2_r(const char *, int, void *, char *, unsigned long, void **, int *);
int gethostbyaddr_r(const void *, unsigned, int, void *, char *, unsigned long, void **, int *);
int *__h_errno_location(void);
int inet_pton(int, const char *, void *);
int strcmp(const char *, const char *);
long read(int, void *, unsigned long), write(int, const void *, unsigned long);
int snprintf(char *, unsigned long, const char *, ...);
int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
int pthread_join(unsigned long, void **);
void *strchr(const char *, int);
unsigned long strlen(const char *);

#define AF_INET 2
#define AF_INET6 10
#define MONOTONIC 1

/* A resolver of one's own, for --lib. */
__attribute__((noinline)) int own_resolver(const char *host)
{
	struct timespec wait = { 0, 7000000 };
	extern int nanosleep(const struct timespec *, struct timespec *);

	nanosleep(&wait, 0);
	return strcmp(host, "own.example") ? -2 : 0;
}

/* As musl's gethostbyname does, it ends in a jump to another function, which finds the
 * stack as this one did; but it takes its time before that.
 */
__attribute__((noinline, optimize("O2"))) int own_front(const char *host)
{
	static const struct timespec wait = { 0, 30000000 };
	extern int nanosleep(const struct timespec *, struct timespec *);

	nanosleep(&wait, 0);
	return own_resolver(host);
}

/* 0, or getaddrinfo's code, or h_errno. */
static int look_up(const char *call, const char *host)
{
	int family = strchr(host, ':') ? AF_INET6 : AF_INET, len = family == AF_INET ? 4 : 16, code = 77;
	char buf[4096], addr[16];
	long entry[8];
	void *result = 0;

	if (!strcmp(call, "getaddrinfo"))
		return getaddrinfo(host, 0, 0, &result);
	if (!strcmp(call, "own_resolver"))
		return own_resolver(host);
	if (!strcmp(call, "own_front"))
		return own_front(host);
	inet_pton(family, host, addr);
	if (!strcmp(call, "gethostbyname_r"))
		gethostbyname_r(host, entry, buf, sizeof(buf), &result, &code);
	else if (!strcmp(call, "gethostbyname2_r"))
		gethostbyname2_r(host, AF_INET, entry, buf, sizeof(buf), &result, &code);
	else if (!strcmp(call, "gethostbyaddr_r"))
		gethostbyaddr_r(addr, len, family, entry, buf, sizeof(buf), &result, &code);
	else {
		if (!strcmp(call, "gethostbyname"))
			result = gethostbyname(host);
		else if (!strcmp(call, "gethostbyname2"))
			result = gethostbyname2(host, AF_INET);
		else
			result = gethostbyaddr(addr, len, family);
		code = *__h_errno_location();
	}
	return result ? 0 : code;
}

static void *one(void *arg)
{
	char **what = arg, out[512];
	struct timespec a, b;
	int code;

	clock_gettime(MONOTONIC, &a);
	code = look_up(what[0], what[1]);
	clock_gettime(MONOTONIC, &b);
	snprintf(out, sizeof(out), "{\"report\":{\"call\":\"%s\",\"host\":\"%s\",\"code\":%d,\"ns\":%ld}}\n", what[0], what[1], code,
		 (b.sec - a.sec) * 1000000000 + b.nsec - a.nsec);
	write(1, out, strlen(out));
	return 0;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 && !strcmp(argv[1], "-t"), first = 1 + threads, n = 0;
	unsigned long ids[64];
	char line[64];

	write(1, "{\"report\":true}\n", 16);
	read(0, line, sizeof(line));
	for (int i = first; i + 1 < argc; i += 2) {
		if (!threads)
			one(&argv[i]);
		else if (n < 64)
			pthread_create(&ids[n++], 0, one, &argv[i]);
	}
	while (n > 0)
		pthread_join(ids[--n], 0);
	write(1, "{\"end\":{}}\n", 11);
	return 0;
}

#ifdef START
int __libc_start_main(int (*)(int, char **), int, char **, void (*)(void), void (*)(void), void (*)(void));
static void nothing(void) {}

__attribute__((used)) static void begin(long *sp)
{
	__libc_start_main(main, *sp, (char **)(sp + 1), nothing, nothing, nothing);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: xor %ebp, %ebp\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: mov x29, #0\n mov x0, sp\n b begin\n");
#endif
#endif
