// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"seine/internal/host"
	"seine/internal/tool"
)

// demoName is the command of the processes that --demo starts.
const demoName = "agent-demo"

// agentDemoCommand is a process of the demo: a slow shop, or its visitor. All of its traffic is
// on loopback.
func agentDemoCommand(stdout, _ io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: demoName, Short: "traffic for 'seine agent --demo', which starts it", Hidden: true, Args: cobra.RangeArgs(1, 2)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := host.Keep(); err != nil {
			return err
		}
		_ = os.WriteFile("/proc/self/comm", []byte("demo-"+args[0]), 0)
		ctx, stop := context.WithCancel(cmd.Context())
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the agent
			stop()
		}()
		switch {
		case args[0] == "shop" && len(args) == 1:
			return demoShop(ctx, stdout)
		case args[0] == "visitor" && len(args) == 2:
			return demoVisitor(ctx, args[1])
		}
		return tool.Usagef("%s is started by 'seine agent --demo'", demoName)
	}
	return cmd
}

// demoShop answers each line after 200 ms. That is the fault to find.
func demoShop(ctx context.Context, stdout io.Writer) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintln(stdout, l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return nil
		}
		go func() {
			defer c.Close()
			for sc := bufio.NewScanner(c); sc.Scan(); {
				time.Sleep(200 * time.Millisecond)
				if _, err := c.Write([]byte(strings.Repeat("x", 4095) + "\n")); err != nil {
					return
				}
			}
		}()
	}
}

// demoVisitor asks the shop, ten times on each connection, and sometimes connects to a port
// where nobody listens.
func demoVisitor(ctx context.Context, shop string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	nobody := l.Addr().String()
	l.Close()
	for ctx.Err() == nil {
		c, err := net.Dial("tcp", shop)
		if err != nil {
			return err
		}
		r := bufio.NewReader(c)
		for range 10 {
			if _, err := c.Write([]byte("what do you have?\n")); err != nil {
				break
			}
			if _, err := r.ReadString('\n'); err != nil {
				break
			}
			if refused, err := net.Dial("tcp", nobody); err == nil {
				refused.Close()
			}
		}
		c.Close()
	}
	return nil
}

// startDemo starts the processes. They end with this one.
func startDemo(ctx context.Context) error {
	start := func(args ...string) (*bufio.Reader, error) {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", append([]string{demoName}, args...)...)
		cmd.Args[0] = "seine"
		cmd.Stderr = os.Stderr
		// Pdeathsig would end it with the thread that starts it. It ends with its input instead.
		cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
		if _, err := cmd.StdinPipe(); err != nil {
			return nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return nil, err
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, func() { _ = cmd.Wait() })
		return bufio.NewReader(out), nil
	}
	out, err := start("shop")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	shop, err := out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if _, err := start("visitor", strings.TrimSpace(shop)); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}
