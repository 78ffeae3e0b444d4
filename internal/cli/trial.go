// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"seine/internal/enrich"
	"seine/internal/row"
	"seine/internal/tool"
	"seine/internal/trial"
)

// TrialMain makes trials of tools possible: see [trial.Main].
func TrialMain() {
	trial.Main(trial.Kit{
		Find:   func(name string) *tool.Tool { t, _ := find(name); return t },
		Parse:  Parse,
		Namers: NamersOf,
	})
}

// NamersOf is for trials, which have no command line.
func NamersOf(s *tool.Session) map[string]row.Namer { return enrich.NewNames(s).Namers() }
