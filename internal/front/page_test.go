// SPDX-License-Identifier: Apache-2.0

package front

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A browser is a real one, at the page of a world.
type browser struct {
	context.Context
	t  *testing.T
	mu sync.Mutex
	// complaints are what went to the console: errors, warnings, exceptions.
	complaints []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("chromium is not there: make test brings it")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1200, 900),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(2*time.Minute))
	alloc, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(alloc)
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	t.Cleanup(cancel)
	b := &browser{Context: ctx, t: t}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.complaints = append(b.complaints, ev.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			b.complaints = append(b.complaints, fmt.Sprintf("console.%s", ev.Type))
		case *log.EventEntryAdded:
			b.complaints = append(b.complaints, fmt.Sprintf("%s: %s %s", ev.Entry.Level, ev.Entry.Text, ev.Entry.URL))
		}
	})
	b.do(log.Enable())
	return b
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b, actions...); err != nil {
		b.t.Fatalf("%v (console: %q)", err, b.complaints)
	}
}

// eval is the value of an expression in the page.
func (b *browser) eval(expr string, into any) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expr, into))
}

// await waits until an expression is true.
func (b *browser) await(expr string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		var is bool
		b.eval("!!("+expr+")", &is)
		if is {
			return
		}
		if time.Now().After(end) {
			var body string
			b.eval("document.body.innerText", &body)
			b.t.Fatalf("never %s:\n%s\nconsole: %q", expr, body, b.complaints)
		}
	}
}

// screenshot keeps a picture where PICTURES names a directory.
func (b *browser) screenshot(name string) {
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	var png []byte
	b.do(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// TestPage: what the page shows is what the API says, on every view; a hostile name does no
// harm; keys are enough; both themes; nothing goes to the console.
func TestPage(t *testing.T) {
	b := newBrowser(t)
	asked := make(chan Question, 1)
	w := newWorld(t, func(o *Options) {
		o.Query = func(_ context.Context, out io.Writer, q Question) error {
			asked <- q
			_, err := io.WriteString(out, `{"time":"2026-11-16T14:02:01Z","tool":"tcplife","comm":"nginx","lport":443}`+"\n"+`{"time":"2026-11-16T14:02:02Z","tool":"tcplife","comm":"<b>x</b>","lport":80}`+"\n")
			return err
		}
	})
	w.fill()
	b.do(chromedp.Navigate(w.server.URL))
	b.await(`document.querySelectorAll("#services tbody tr").length === 3`)

	// Each cell of services against the API.
	var services struct {
		Services []struct {
			ID, Service string
			Conns       float64
			TurnsS      float64 `json:"turns_s"`
			P99         float64 `json:"p99_us"`
		}
	}
	ask(t, w, "/api/v1/services", &services)
	for _, s := range services.Services {
		var cells map[string]string
		b.eval(fmt.Sprintf(`Object.fromEntries([...[...document.querySelectorAll("#services tbody tr")].find((r) => r.dataset.id === %s).cells].map((c) => [c.dataset.column, c.textContent]))`, quoted(s.ID)), &cells)
		p99 := fmt.Sprintf("%.1f ms", s.P99/1000)
		if s.P99 < 10_000 {
			p99 = fmt.Sprintf("%.2f ms", s.P99/1000)
		}
		rate := fmt.Sprintf("%.1f", s.TurnsS)
		if s.TurnsS == float64(int(s.TurnsS)) {
			rate = fmt.Sprint(int(s.TurnsS))
		}
		if cells["service"] != s.Service || cells["conns"] != fmt.Sprint(s.Conns) || cells["turns_s"] != rate || cells["p99_us"] != p99 {
			t.Errorf("the page shows %v, the API says %+v", cells, s)
		}
	}
	var images int
	if b.eval(`document.querySelectorAll("img").length`, &images); images != 0 {
		t.Errorf("%d images: a name became an element", images)
	}
	b.screenshot("services")

	// A service, by the keyboard alone: from the beginning of the page to its link.
	b.await(`document.querySelectorAll("#services tbody a").length >= 3`)
	b.do(chromedp.Click("#pause", chromedp.ByID)) // so that the rows stay under the keys
	b.eval(`document.querySelector(".skip").focus()`, nil)
	for i := 0; ; i++ {
		b.do(chromedp.KeyEvent(kb.Tab))
		var at string
		b.eval(`document.activeElement.textContent`, &at)
		if at == "slowd :8080" {
			break
		}
		if i > 60 {
			t.Fatal("Tab never comes to the service")
		}
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.await(`document.querySelector("h2")?.textContent === "slowd :8080" && document.querySelectorAll("svg.graph path").length > 0`)
	b.screenshot("service")

	b.do(chromedp.Navigate(w.server.URL + "/#findings"))
	b.await(`document.querySelectorAll("article.card").length > 0`)
	var findings struct {
		Findings []struct{ ID, Title, Next, Object string }
	}
	ask(t, w, "/api/v1/findings", &findings)
	for _, f := range findings.Findings {
		b.await(fmt.Sprintf(`[...document.querySelectorAll("article")].some((a) => a.dataset.id === %s && a.textContent.includes(%s) && a.textContent.includes(%s))`, quoted(f.ID), quoted(f.Title), quoted(f.Next)))
	}
	b.screenshot("findings")

	b.do(chromedp.Navigate(w.server.URL + "/#map"))
	b.await(`document.querySelectorAll("svg.map g").length === 4 && document.querySelectorAll("svg.map path.edge").length === 2`)
	b.await(fmt.Sprintf(`[...document.querySelectorAll("svg.map title")].some((t) => t.textContent === %s)`, quoted(hostile)))
	b.screenshot("map")

	b.do(chromedp.Navigate(w.server.URL + "/#connections"))
	b.await(`document.querySelectorAll("#connections tbody tr").length === 1`)
	b.do(chromedp.Click(`#connections tbody a`, chromedp.ByQuery))
	b.await(`document.querySelector("h2")?.textContent === "client 127.0.0.1:40001 – 127.0.0.1:8080" && document.body.textContent.includes("fast 1, tail loss probe 0, timeout 0")`)
	b.await(`document.querySelector("td[data-column=closed]")?.textContent === "open, older than the agent"`)
	b.screenshot("connection")

	// A range of time of the recording: the page asks for it, and shows the rows.
	b.do(chromedp.Navigate(w.server.URL+"/#recording"), chromedp.SetValue(`#query input[name=since]`, "14:02", chromedp.ByQuery), chromedp.SetValue(`#query input[name=until]`, "14:03", chromedp.ByQuery),
		chromedp.Click("#query button", chromedp.ByQuery))
	select {
	case got := <-asked:
		if want := (Question{Tool: "tcplife", Since: "14:02", Until: "14:03", Limit: 1000}); got != want {
			t.Errorf("the page asks %+v, want %+v", got, want)
		}
	case <-time.After(time.Minute):
		t.Fatal("the page does not ask")
	}
	b.await(`[...document.querySelectorAll("#rows-table tbody tr")].map((r) => [...r.cells].map((c) => c.textContent).join(" ")).join("; ") === "2026-11-16T14:02:01Z nginx 443; 2026-11-16T14:02:02Z <b>x</b> 80"`)

	// Both themes have a background of their own, and text that can be read on it.
	colours := map[string]bool{}
	for range 2 {
		b.do(chromedp.Click("#theme", chromedp.ByID))
		var c [2]string
		b.eval(`[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]`, &c)
		colours[c[0]+" "+c[1]] = true
		b.screenshot("theme-" + fmt.Sprint(len(colours)))
	}
	if len(colours) != 2 {
		t.Errorf("the themes are %v", colours)
	}

	// On a telephone nothing is wider than the screen but tables, which scroll by themselves.
	b.do(emulation.SetDeviceMetricsOverride(360, 740, 2, true), chromedp.Navigate(w.server.URL+"/#services"))
	b.await(`document.querySelectorAll("#services tbody tr").length === 3`)
	var over int
	if b.eval(`document.documentElement.scrollWidth - innerWidth`, &over); over > 0 {
		t.Errorf("the page is %d pixels too wide for a telephone", over)
	}
	b.screenshot("telephone")

	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		t.Errorf("the console says %q", b.complaints)
	}
}

// TestPageMany has 10,000 services: the page shows the first ones and answers at once.
func TestPageMany(t *testing.T) {
	t.Parallel() // it waits more than it works
	b := newBrowser(t)
	w := newWorld(t, nil)
	at := time.Now().Truncate(time.Second).Add(-3 * time.Second)
	for i := range 9999 {
		w.row("flows", "services", at, map[string]any{"side": "out", "comm": fmt.Sprintf("p%d", i), "netns": 1, "raddr": netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), "rport": 80, "conns": 1, "turns": 1 + i, "turn_us": turns(1, time.Millisecond), "peer_ms": 1})
	}
	b.do(chromedp.Navigate(w.server.URL))
	b.await(`document.querySelectorAll("#services tbody tr").length === 200 && document.body.textContent.includes("200 of 9,999")`)
	// The field is the same through all refreshes: keys, marks and the input of Chinese need that.
	b.eval(`(window.field = document.querySelector("#filter")).focus(); window.before = document.querySelector("#services")`, nil)
	b.await(`document.querySelector("#services") !== window.before`)
	b.do(chromedp.KeyEvent("p1234"))
	b.await(`document.querySelectorAll("#services tbody tr").length === 1 && window.field.value === "p1234" && document.activeElement === window.field`)
	// A slow click goes to the row that it began on.
	var on [2]float64
	b.eval(`(() => { const r = document.querySelector("#services tbody a").getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()`, &on)
	b.do(input.DispatchMouseEvent(input.MousePressed, on[0], on[1]).WithButton(input.Left).WithClickCount(1))
	time.Sleep(3 * time.Second) // the page asks anew each second
	b.do(input.DispatchMouseEvent(input.MouseReleased, on[0], on[1]).WithButton(input.Left).WithClickCount(1))
	b.await(`document.querySelector("h2")?.textContent.startsWith("p1234 ")`)
	b.do(chromedp.NavigateBack())
	b.await(`document.querySelectorAll("#services tbody tr").length === 1`)
	// Between frames of the page no more than a second goes by, while it refreshes.
	var slowest float64
	b.do(chromedp.Evaluate(`(async () => { let most = 0, last = performance.now(); const end = last + 5000; while (last < end) { await new Promise((r) => setTimeout(r, 0)); const now = performance.now(); most = Math.max(most, now - last); last = now; } return most; })()`, &slowest,
		func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if slowest > 3000 {
		t.Errorf("the page stood still for %.0f ms", slowest)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.complaints) > 0 {
		t.Errorf("the console says %s", strings.Join(b.complaints, "; "))
	}
}

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }
