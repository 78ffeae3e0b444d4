// SPDX-License-Identifier: Apache-2.0

package soconnlat

import "seine/internal/tool"

var demo = tool.Workload{}

var live = []tool.Case{}
