// SPDX-License-Identifier: Apache-2.0

package bt

// bccNames gives the names of BCC's specs their meaning.
type bccNames struct {
	params map[string]int // of a signature, from 1
	ident_ func(p *parser, t token, name string) Expr
	call_  func(p *parser, c *Call) Expr
}

func (b *bccNames) ident(p *parser, t token, name string) Expr { return b.ident_(p, t, name) }
func (b *bccNames) call(p *parser, c *Call) Expr               { return b.call_(p, c) }
