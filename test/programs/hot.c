//go:build ignore
/* SPDX-License-Identifier: Apache-2.0 */
/* Burns a second of processor time in one function, once its input has ended. */
#include <time.h>
#include <unistd.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void hot_function(void)
{
	for (unsigned long i = 0; i < 1 << 20; i++)
		sum += i;
}

__attribute__((noinline)) static void middle(void)
{
	hot_function();
	sum++;
}

int main(void)
{
	char c;

	while (read(0, &c, 1) > 0)
		;
	while (clock() < CLOCKS_PER_SEC)
		middle();
	return 0;
}
