// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"slices"

	"github.com/spf13/pflag"

	"seine/internal/agent"
)

// agentReference is docs/AGENT-CONFIG.md.
func agentReference() []byte {
	var b bytes.Buffer
	b.WriteString(`# The config file of seine agent

This page is generated from the flags of 'seine agent'. Each key is the flag of the same name. The command line overrides
the file. An unknown key is an error, and so is a key that comes twice. [deploy/agent.yaml](../deploy/agent.yaml) has all keys.

'seine agent --config FILE --check-config' checks a file. On SIGHUP a running agent reads its file again. If the file is
not valid, the agent logs the error and keeps its configuration.

| key | default | meaning |
|---|---|---|
`)
	fs := pflag.NewFlagSet(agentName, pflag.ContinueOnError)
	(&agentFlags{stdout: io.Discard, stder: io.Discard}).declare(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(notKeys, f.Name) {
			value := f.DefValue
			if value == "[]" {
				value = ""
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, value, f.Usage)
		}
	})
	b.WriteString("| `tools` | | list of more tools with their flags, to run and record |\n| `metrics` | | list of metrics, made of the rows of tools |\n\nA metric has these keys:\n\n| key | meaning |\n|---|---|\n")
	for f := range reflect.TypeFor[agent.Custom]().Fields() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", f.Tag.Get("yaml"), f.Tag.Get("help"))
	}
	return b.Bytes()
}
