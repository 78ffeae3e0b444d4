// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"seine/internal/tool"
	"seine/internal/watch"
)

// TestWhyLosses: what a tool of why told and what it lost is together what happened.
func TestWhyLosses(t *testing.T) {
	engine, err := tool.NewEngine(tool.EngineOptions{Buffer: uint64(os.Getpagesize())})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	const happened = 20_000
	c, err := hold(fmt.Sprintf("bash -c 'for ((i = 0; i < %d; i++)); do : >/dev/udp/127.0.0.1/9; done'", happened))
	if err != nil {
		t.Fatal(err)
	}
	defer c.end()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	f := &whyFlags{duration: time.Minute, err: io.Discard, onReady: func(context.CancelFunc) {}}
	model := watch.New(watch.Options{Keep: time.Hour})
	asked, err := f.attach(engine, model, []string{fmt.Sprint("udpconnect --pid ", c.pid)})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer stop()
		c.start()
		<-c.done
	}()
	sampler := watch.NewSampler()
	defer sampler.Close()
	if err := f.watch(ctx, engine, asked, sampler, model, &closer{model: watch.New(watch.Options{})}); err != nil {
		t.Fatal(err)
	}
	s := model.Window(time.Hour).Sources["udpconnect"]
	if s.Lost == 0 || s.Rows+s.Lost != happened {
		t.Errorf("%d rows and %d lost of %d connects; some must be lost", s.Rows, s.Lost, happened)
	}
}
