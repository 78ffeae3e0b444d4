// SPDX-License-Identifier: Apache-2.0

// Command guide reruns the commands that the guide, SIXTY-SECONDS and README show, and
// prints how their output differs from the pages. Run it from the project's root as root, by make docs. With
// -update it writes the new output into the pages.
//
// A block of a page is rerun if a mark stands above it:
//
//	<!-- run beside=shop head=8 -->
//	```
//	# seine tcpretrans --netns shop -d 5
//	…
//
// See block.go for what a mark can say, load.go for the traffic, and shape.go for what
// counts as a difference.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"seine/internal/lab"
)

func main() {
	lab.Main() // does not return in a child of a load
	update := flag.Bool("update", false, "write new output where it differs")
	all := flag.Bool("all", false, "with -update: write all output, where only figures differ too")
	only := flag.String("only", "", "only blocks whose page and command match this regular expression")
	flag.Parse()
	n, err := run(".", *update, *all, *only)
	if err == nil && n > 0 && !*update {
		err = fmt.Errorf("%d blocks differ: go run ./internal/gen/guide -update writes them", n)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guide:", err)
		os.Exit(1)
	}
}

// files lists the pages with blocks that are rerun.
func files(root string) ([]string, error) {
	list, err := filepath.Glob(filepath.Join(root, "docs/guide/*.md"))
	return append(list, filepath.Join(root, "docs/SIXTY-SECONDS.md"), filepath.Join(root, "README.md")), err
}

// run reruns the blocks and returns how many differ.
func run(root string, update, all bool, only string) (int, error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return 0, err
	}
	list, err := files(root)
	if err != nil {
		return 0, err
	}
	differ := 0
	for _, path := range list {
		text, err := os.ReadFile(path)
		if err != nil {
			return differ, err
		}
		p, err := parse(string(text))
		if err != nil {
			return differ, fmt.Errorf("%s:%w", path, err)
		}
		n, err := p.rerun(root, path, all, wanted)
		if err != nil {
			return differ, err
		}
		differ += n
		if update {
			if err := os.WriteFile(path, []byte(p.String()), 0o644); err != nil {
				return differ, err
			}
		}
	}
	return differ, nil
}

// rerun runs the blocks of a page. Blocks in a row with the same load share it.
func (p *page) rerun(root, path string, all bool, wanted *regexp.Regexp) (differ int, err error) {
	stage, err := newStage(root)
	if err != nil {
		return 0, err
	}
	defer func() { err = firstError(err, stage.close()) }()
	for _, b := range p.blocks {
		if !wanted.MatchString(path + ": " + b.command) {
			continue
		}
		if err := stage.set(b.beside); err != nil {
			return differ, fmt.Errorf("%s:%d: load %s: %w", path, b.line, b.beside, err)
		}
		fmt.Printf("%s:%d: # %s\n", path, b.line, b.command)
		out, err := stage.run(b.command)
		if err != nil {
			return differ, fmt.Errorf("%s:%d: %s: %w", path, b.line, b.command, err)
		}
		gone, come := b.compare(out)
		for _, l := range gone {
			fmt.Println("  -", l)
		}
		for _, l := range come {
			fmt.Println("  +", l)
		}
		if len(gone)+len(come) > 0 {
			differ++
		}
		if len(gone)+len(come) > 0 || all {
			b.output = b.cut(out)
		}
	}
	return differ, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
