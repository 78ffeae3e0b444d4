// SPDX-License-Identifier: Apache-2.0

// Command screen runs a full-screen program in a real terminal (tmux), presses keys, and writes
// what the terminal shows as SVG: what it shows in the end, or with -session what it shows after
// each key, one picture after the other.
//
//	go run ./internal/gen/screen -session -wait 'Services' -keys 'Enter,4' -o docs/pictures/top.svg ./seine demo top
package main

import (
	"flag"
	"fmt"
	"html"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	size := flag.String("size", "100x28", "columns and lines")
	keys := flag.String("keys", "", "keys to press, as tmux names them, with commas between them")
	wait := flag.String("wait", ".", "press and write when the screen shows this pattern")
	rest := flag.Duration("rest", 2*time.Second, "how long to wait after each key, and before the end")
	session := flag.Bool("session", false, "write a picture for each key")
	out := flag.String("o", "", "the file to write")
	flag.Parse()
	var columns, lines int
	if _, err := fmt.Sscanf(*size, "%dx%d", &columns, &lines); err != nil || *out == "" || flag.NArg() == 0 {
		log.Fatal("screen: -o FILE and a command are needed, and -size as 100x28")
	}
	screens, err := capture(columns, lines, *wait, strings.FieldsFunc(*keys, func(r rune) bool { return r == ',' }), *rest, flag.Args())
	if !*session && err == nil {
		screens = screens[len(screens)-1:]
	}
	if err == nil {
		err = os.WriteFile(*out, []byte(svg(screens, columns, lines)), 0o644)
	}
	if err != nil {
		log.Fatal("screen: ", err)
	}
}

// capture is what the terminal shows at first and after each key, with its control codes.
func capture(columns, lines int, wait string, keys []string, rest time.Duration, command []string) (screens []string, err error) {
	dir, err := os.MkdirTemp("", "screen")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tmux := func(args ...string) (string, error) {
		out, err := exec.Command("tmux", append([]string{"-S", filepath.Join(dir, "s")}, args...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("tmux %s: %w: %s", args[0], err, out)
		}
		return string(out), nil
	}
	pattern, err := regexp.Compile(wait)
	if err != nil {
		return nil, err
	}
	start := append([]string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(lines), "env", "LANG=C.UTF-8"}, command...)
	if _, err := tmux(start...); err != nil {
		return nil, err
	}
	defer tmux("kill-server")
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		now, err := tmux("capture-pane", "-p")
		if err != nil {
			return nil, err
		}
		if pattern.MatchString(now) {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the screen does not show %s:\n%s", wait, now)
		}
	}
	for i := 0; ; i++ {
		time.Sleep(rest)
		now, err := tmux("capture-pane", "-p", "-e")
		if err != nil {
			return nil, err
		}
		if screens = append(screens, now); i == len(keys) {
			return screens, nil
		}
		if _, err := tmux("send-keys", keys[i]); err != nil {
			return nil, err
		}
	}
}

// Cells of the picture, and its colours by the number of SGR.
const (
	cellWidth, cellHeight = 8.4, 18
	back, front           = "#1e1e1e", "#d4d4d4"
)

var colors = map[string]string{"90": "#8a8a8a", "91": "#f14c4c", "92": "#23d18b", "93": "#e5e510"}

var code = regexp.MustCompile(`\x1b\[([0-9;]*)m`)

// each is how long each picture of a session is shown, in seconds.
const each = 3

// svg draws screens, one after the other if there are several.
func svg(screens []string, columns, lines int) string {
	var b strings.Builder
	w, h := float64(columns)*cellWidth+20, float64(lines)*cellHeight+20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" font-family="monospace" font-size="14">`+"\n", w, h)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" rx="6" fill="%s"/>`+"\n", back)
	if n := len(screens); n > 1 {
		fmt.Fprintf(&b, "<style>@keyframes turn { 0%% { visibility: visible } %.3f%%, 100%% { visibility: hidden } }\n", 100/float64(n))
		fmt.Fprintf(&b, "g { visibility: hidden; animation: turn %ds step-end infinite }\n", n*each)
		fmt.Fprintf(&b, "g:first-of-type { visibility: visible }\n@media (prefers-reduced-motion) { g { animation: none } }</style>\n")
	}
	for i, screen := range screens {
		fmt.Fprintf(&b, `<g style="animation-delay: %ds">`+"\n", i*each)
		draw(&b, screen)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws a screen, each run of one style as a text.
func draw(b *strings.Builder, screen string) {
	fill, bold, turned := front, false, false // tmux carries them over from line to line
	for y, line := range strings.Split(strings.TrimRight(screen, "\n"), "\n") {
		x := 0
		write := func(text string) {
			n := len([]rune(text))
			if n == 0 {
				return
			}
			left, top := 10+float64(x)*cellWidth, 10+float64(y)*cellHeight
			color := fill
			if turned {
				fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", left, top, float64(n)*cellWidth, cellHeight, front)
				color = back
			}
			if strings.TrimSpace(text) != "" {
				weight := ""
				if bold {
					weight = ` font-weight="bold"`
				}
				fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s"%s xml:space="preserve" textLength="%.1f">%s</text>`+"\n",
					left, top+13.5, color, weight, float64(n)*cellWidth, html.EscapeString(text))
			}
			x += n
		}
		at := 0
		for _, m := range code.FindAllStringSubmatchIndex(line, -1) {
			write(line[at:m[0]])
			at = m[1]
			for p := range strings.SplitSeq(line[m[2]:m[3]], ";") {
				switch p {
				case "", "0":
					fill, bold, turned = front, false, false
				case "1":
					bold = true
				case "7":
					turned = true
				case "39":
					fill = front
				default:
					if c := colors[p]; c != "" {
						fill = c
					}
				}
			}
		}
		write(line[at:])
	}
}
