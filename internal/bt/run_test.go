// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"
)

func TestDev(t *testing.T) {
	e := os.Getenv("BT_E")
	if e == "" {
		t.Skip("no BT_E")
	}
	var out bytes.Buffer
	began := time.Now()
	p, err := Compile(&Source{"-e", e}, Options{Out: &out, Err: os.Stderr, Duration: 2 * time.Second, Verbose: 1, Output: os.Getenv("BT_O"),
		Ready: func() { t.Log("ready after", time.Since(began)) }})
	if err != nil {
		if be, ok := err.(*Error); ok {
			t.Log("\n" + be.Show())
		}
		t.Fatal(err)
	}
	if os.Getenv("BT_L") != "" {
		t.Log(p.Listing())
	}
	r, err := p.Run(context.Background())
	t.Log("\n" + out.String())
	if err != nil {
		if be, ok := err.(*refusedError); ok {
			t.Log("\n" + be.at.Show())
		}
		t.Fatal(err)
	}
	t.Log(r.Code)
}
