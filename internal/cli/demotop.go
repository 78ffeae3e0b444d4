// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"io"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/lab"
	"seine/internal/tool"
)

// demoTop runs top beside the shop of 'seine demo why'.
func demoTop(self *cobra.Command, args []string, stdout, stderr io.Writer) error {
	cmd, f := newTop(stdout, stderr)
	if err := cmd.ParseFlags(args); errors.Is(err, pflag.ErrHelp) {
		return self.Help()
	} else if err != nil {
		return flagError(cmd, err)
	}
	if f.from.path != "" {
		return tool.Usagef("demo top makes traffic of its own: leave out --from, or say 'seine top --from %s'", f.from.path)
	}
	if err := checkPermission(); err != nil {
		return err
	}
	w, err := lab.NewWorld(lab.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	open := shop
	open.Pages = math.MaxInt32 // until the screen ends
	traffic := demoTraffic{world: w}
	traffic.begin(func() error { return lab.RunShop(w, "", open) }, func() {})
	return traffic.end(f.run(self.Context(), cmd.Flags(), cmd.Flags().Args()))
}
