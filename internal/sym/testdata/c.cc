// SPDX-License-Identifier: Apache-2.0

// Says where its functions and two of the C library are, and waits.
#include <cstdio>
#include <unistd.h>
#include <pthread.h>
#include <sys/socket.h>

namespace outer {
struct Thing {
	template <class T> static __attribute__((noinline)) void *where(T) { return __builtin_return_address(0); }
	static __attribute__((noinline)) void *call(int x) { void *p = where(x); __asm__ volatile("" : "+r"(p)); return p; }
};
}

extern "C" void bare();
__asm__(".text\n.globl bare\n.type bare,@function\nbare:\nnop\nnop\nnop\nnop\n"
	".globl sized\n.type sized,@function\nsized:\nnop\nnop\n.size sized,.-sized\nnop\nnop\nnop\nnop\n");
extern "C" void sized();

int main()
{
	printf("%p %p %p %p %p\n", outer::Thing::call(1), (void *)bare, (void *)sized, (void *)connect, (void *)pthread_create);
	fflush(stdout);
	char c;
	return read(0, &c, 1) < 0;
}
