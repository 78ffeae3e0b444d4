// SPDX-License-Identifier: Apache-2.0

package object

import "embed"

const arch = "amd64"

//go:embed amd64/*.o.zst amd64/*.needs
var files embed.FS
