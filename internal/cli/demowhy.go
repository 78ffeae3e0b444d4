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

// shop is the service that 'seine demo why' explains. web waits for db, one page at a time, so
// that its accept queue overflows. Nothing else is wrong with web.
var shop = lab.Shop{Think: 150 * time.Millisecond, Backlog: 4, Browsers: 12, Pages: 50}

// demoWhy runs why on a shop with a fault.
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
	traffic := demoTraffic{world: w}
	f.onReady = func(stop context.CancelFunc) {
		traffic.begin(func() error { return lab.RunShop(w, "", shop) }, stop)
	}
	f.say("the browser asks web for %[2]d pages; web asks db, which takes %[1]s for an answer", shop.Think, shop.Pages)
	return traffic.end(f.run(self.Context(), cmd.Flags(), cmd.Flags().Args()))
}
