// SPDX-License-Identifier: Apache-2.0

package cases

import "seine/internal/lab"

func init() { lab.RegisterForTests() }
