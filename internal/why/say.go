// SPDX-License-Identifier: Apache-2.0

package why

import "seine/internal/watch"

// Command is the command line of a tool with the filters of a service.
func Command(tool string, k watch.ServiceKey) string { return command(tool, k) }
