// SPDX-License-Identifier: Apache-2.0

package object

import "embed"

const arch = "arm64"

//go:embed arm64/*.o.zst arm64/*.needs
var files embed.FS
