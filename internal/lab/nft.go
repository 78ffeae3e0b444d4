// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Refuse makes netfilter drop all IPv4 packets for the host, by a chain of
// nf_tables without rules.
func (w *World) Refuse(host string) error {
	var b nftBatch
	b.chain("filter", unix.NF_INET_LOCAL_IN, 0, 0) // NF_DROP
	return w.nft(host, &b)
}

// Redirect makes netfilter redirect the packets of a protocol that the host sends
// to one port, of any address, to another port of the host, as Docker does for its
// name server.
func (w *World) Redirect(host string, proto uint8, from, to uint16) error {
	var b nftBatch
	const dstnat = ^uint32(100) + 1                   // priority of destination NAT: -100
	b.chain("nat", unix.NF_INET_LOCAL_OUT, dstnat, 1) // NF_ACCEPT
	be16 := func(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }
	b.rule(
		nftExpr("meta", nftAttr(unix.NFTA_META_DREG, nft32(unix.NFT_REG_1)), nftAttr(unix.NFTA_META_KEY, nft32(unix.NFT_META_L4PROTO))),
		nftCompare([]byte{proto}),
		nftExpr("payload", nftAttr(unix.NFTA_PAYLOAD_DREG, nft32(unix.NFT_REG_1)), nftAttr(unix.NFTA_PAYLOAD_BASE, nft32(unix.NFT_PAYLOAD_TRANSPORT_HEADER)),
			nftAttr(unix.NFTA_PAYLOAD_OFFSET, nft32(2)), nftAttr(unix.NFTA_PAYLOAD_LEN, nft32(2))),
		nftCompare(be16(from)),
		nftExpr("immediate", nftAttr(unix.NFTA_IMMEDIATE_DREG, nft32(unix.NFT_REG_1)),
			nftAttr(unix.NFTA_IMMEDIATE_DATA|unix.NLA_F_NESTED, nftAttr(unix.NFTA_DATA_VALUE, be16(to)))),
		nftExpr("redir", nftAttr(unix.NFTA_REDIR_REG_PROTO_MIN, nft32(unix.NFT_REG_1))),
	)
	err := w.nft(host, &b)
	if errors.Is(err, unix.ENOENT) { // there is no module for it
		return fmt.Errorf("%w: %w", ErrNotSupported, err)
	}
	return err
}

// nftBatch is messages for nf_tables: a table with a chain, both called nftName.
type nftBatch struct{ bytes []byte }

var nftName = []byte("lab\x00")

func nftAttr(kind uint16, value ...[]byte) []byte {
	v := slices.Concat(value...)
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(v)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), v...)
	return append(b, make([]byte, -len(v)&3)...)
}

func nft32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// nftExpr is one expression of a rule.
func nftExpr(name string, attrs ...[]byte) []byte {
	return nftAttr(unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED,
		nftAttr(unix.NFTA_EXPR_NAME, []byte(name+"\x00")), nftAttr(unix.NFTA_EXPR_DATA|unix.NLA_F_NESTED, attrs...))
}

// nftCompare continues the rule if the first register has this value.
func nftCompare(value []byte) []byte {
	return nftExpr("cmp", nftAttr(unix.NFTA_CMP_SREG, nft32(unix.NFT_REG_1)), nftAttr(unix.NFTA_CMP_OP, nft32(unix.NFT_CMP_EQ)),
		nftAttr(unix.NFTA_CMP_DATA|unix.NLA_F_NESTED, nftAttr(unix.NFTA_DATA_VALUE, value)))
}

func (b *nftBatch) message(kind, flags uint16, family byte, resource uint16, attrs ...[]byte) {
	body := slices.Concat(attrs...)
	m := binary.NativeEndian.AppendUint32(nil, uint32(20+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, make([]byte, 8)...)
	m = append(m, family, unix.NFNETLINK_V0)
	m = binary.BigEndian.AppendUint16(m, resource)
	b.bytes = append(append(b.bytes, m...), body...)
}

const nftSubsystem = unix.NFNL_SUBSYS_NFTABLES << 8

func (b *nftBatch) chain(kind string, hook, priority, policy uint32) {
	b.message(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	b.message(nftSubsystem|unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, unix.NFPROTO_IPV4, 0, nftAttr(unix.NFTA_TABLE_NAME, nftName))
	b.message(nftSubsystem|unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_ACK, unix.NFPROTO_IPV4, 0,
		nftAttr(unix.NFTA_CHAIN_TABLE, nftName), nftAttr(unix.NFTA_CHAIN_NAME, nftName),
		nftAttr(unix.NFTA_CHAIN_HOOK|unix.NLA_F_NESTED, nftAttr(unix.NFTA_HOOK_HOOKNUM, nft32(hook)), nftAttr(unix.NFTA_HOOK_PRIORITY, nft32(priority))),
		nftAttr(unix.NFTA_CHAIN_POLICY, nft32(policy)),
		nftAttr(unix.NFTA_CHAIN_TYPE, []byte(kind+"\x00")))
}

func (b *nftBatch) rule(exprs ...[]byte) {
	b.message(nftSubsystem|unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND|unix.NLM_F_ACK, unix.NFPROTO_IPV4, 0,
		nftAttr(unix.NFTA_RULE_TABLE, nftName), nftAttr(unix.NFTA_RULE_CHAIN, nftName),
		nftAttr(unix.NFTA_RULE_EXPRESSIONS|unix.NLA_F_NESTED, exprs...))
}

// nft sends a batch and reads the kernel's answers.
func (w *World) nft(host string, b *nftBatch) error {
	b.message(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	err := w.Do(host, func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, b.bytes, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		// An error of any message is among the first answers, and undoes all of it.
		answer := make([]byte, 4096)
		n, _, err := unix.Recvfrom(fd, answer, 0)
		for err == nil && n >= 20 {
			if e := int32(binary.NativeEndian.Uint32(answer[16:])); e != 0 {
				return unix.Errno(-e)
			}
			if n, _, err = unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT); err == unix.EAGAIN {
				return nil
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("lab: %w", unsupported("nf_tables", err))
	}
	return nil
}
