// SPDX-License-Identifier: Apache-2.0

package sym

// maxDepth is how deep the kernel follows a stack: PERF_MAX_STACK_DEPTH. A stack
// that long was cut, and how it ends says nothing.
const maxDepth = 127

// starts are the functions that a thread begins in, under the names that C
// libraries, Go and dynamic linkers have for them.
var starts = map[string]bool{
	"_start": true, "__start": true, "_start_c": true, "_dl_start_user": true,
	"__libc_start_main": true, "__libc_start_main_impl": true, "__libc_start_call_main": true,
	"generic_start_main": true, "libc_start_main_stage2": true,
	"start_thread": true, "thread_start": true, "clone": true, "__clone": true, "clone3": true, "__clone3": true,
	"runtime.goexit": true, "runtime.mstart": true, "runtime.rt0_go": true,
	"_rt0_amd64": true, "_rt0_amd64_linux": true, "_rt0_arm64_linux": true,
}

// Broken reports whether a user stack, innermost frame first, looks as if it
// could not be followed to its end, because some code on the way was built
// without frame pointers (-fomit-frame-pointer, a compiler's default). culprit is
// the module where the trail was lost. Going outwards, the first of these decides:
//
//  1. an address in no mapping: broken in the frame before it; a frame register
//     that holds some other value is followed to anywhere;
//  2. a function that threads start in: whole;
//
// and when the stack ends without any:
//
//  3. 127 frames or more: cut by the kernel, taken as whole;
//  4. three frames or more, the last in a function without a name: taken as whole,
//     because stripped C libraries do not name where threads start;
//  5. else broken, where it ends.
//
// It cannot see a single caller left out in the middle, which is what a C library
// without frame pointers does when the program has them.
func Broken(frames []Frame) (culprit string, broken bool) {
	for _, f := range frames {
		if f.Module == "" {
			return culprit, true
		}
		if starts[f.Sym] {
			return "", false
		}
		culprit = f.Module
	}
	n := len(frames)
	if n == 0 || n >= maxDepth || n >= 3 && frames[n-1].Sym == "" {
		return "", false
	}
	return culprit, true
}
