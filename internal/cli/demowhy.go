// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/lab"
)

// shop is the service that 'seine demo why' has explained: nothing is wrong with web but that it
// waits for db, one page at a time, so that connections do not fit into its queue.
var shop = lab.Shop{Think: 150 * time.Millisecond, Backlog: 4, Browsers: 12, Pages: 50}

// demoWhy explains a service with a fault.
func demoWhy(self *cobra.Command, args []string, stdout, stderr io.Writer) error {
	cmd, f := newWhy(stdout, stderr)
	if err := cmd.ParseFlags(args); errors.Is(err, pflag.ErrHelp) {
		return self.Help()
	} else if err != nil {
		return flagError(cmd, err)
	}
	if err := checkPermission(); err != nil {
		return err
	}
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	f.aim = target{text: "the shop", only: w.Netns("")}
	trouble, begun := make(chan error, 1), false
	f.onReady = func(stop context.CancelFunc) {
		begun = true
		go func() {
			trouble <- lab.RunShop(w, "", shop)
			time.Sleep(settle)
			stop()
		}()
	}
	f.say("browser asks web, and web asks db, which takes %s; %d pages", shop.Think, shop.Pages)
	err = f.run(self.Context(), cmd.Flags(), cmd.Flags().Args())
	if !begun {
		return err
	}
	select {
	case other := <-trouble:
		return errors.Join(err, other)
	default: // the user or -d ended it first
		w.Stop()
		<-trouble
		return err
	}
}
