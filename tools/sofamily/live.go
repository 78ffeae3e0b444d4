// SPDX-License-Identifier: Apache-2.0

package sofamily

import "seine/internal/trial"

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return nil
}
