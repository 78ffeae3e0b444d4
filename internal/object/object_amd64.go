// SPDX-License-Identifier: Apache-2.0

package object

import "embed"

const arch = "amd64"

//go:embed amd64/*.o.gz amd64/*.needs
var files embed.FS
