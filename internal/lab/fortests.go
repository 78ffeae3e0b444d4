// SPDX-License-Identifier: Apache-2.0

package lab

// RegisterForTests registers the bodies that neither a demo nor a self-test starts. The
// product does not call it, so the linker leaves them out.
func RegisterForTests() {
	Register(bodyDNSWire, dnsWireBody)
	Register(bodyFirstBytes, doFirstBytes)
	Register(bodyHang, hang)
	Register(bodyRefused, refusedBody)
}
