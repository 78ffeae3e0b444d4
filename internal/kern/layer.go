// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"strings"
	"sync"
)

// netLayers are the layers of the kernel's network code, from the top down, each with the
// prefixes of its function names. Leading underscores do not count. Other functions, such
// as those for memory, locks and buffers (skb_…), count for the layer of their caller.
var netLayers = []struct {
	name     string
	prefixes string
}{
	{"socket", "sock_ sk_ lock_sock release_sock socket_ sockfs_ move_addr_to_ " +
		"inet_sendmsg inet_recvmsg inet6_sendmsg inet6_recvmsg inet_send_prepare inet_accept inet_stream_ inet_dgram_ inet_release inet_shutdown " +
		"inet_bind inet6_bind inet_create inet6_create inet6_release inet_ioctl inet_getname " +
		"sys_socket sys_bind sys_connect sys_listen sys_accept sys_sendto sys_recvfrom sys_sendmsg sys_recvmsg sys_sendmmsg sys_recvmmsg " +
		"sys_shutdown sys_setsockopt sys_getsockopt sys_getsockname sys_getpeername scm_ copy_msghdr_"},
	{"unix", "unix_"},
	{"netlink", "netlink_ rtnl_ rtnetlink_ genl_ nlmsg_ nla_"},
	{"packet", "packet_ tpacket_ xsk_ xdp_do_"},
	{"tcp", "tcp_ tcp4_ tcp6_ mptcp_ inet_csk_ inet_ehash inet_twsk_ inet_hash inet_lookup inet6_lookup inet_reqsk reqsk_ bictcp_ cubictcp_ bbr_ dctcp_ tls_"},
	{"udp", "udp_ udp4_ udp6_ udpv6_ udplite ip4_datagram_ ip6_datagram_ ping_v4 ping_v6 ping_rcv ping_sendmsg ping_recvmsg raw_sendmsg raw_recvmsg rawv6_ sctp_ quic_"},
	{"ip", "ip_ ip4_ ip6_ ipv4_ ipv6_ inet_gro inet_gso ipv6_gro ipv6_gso fib_ fib4_ fib6_ rt6_ rt_dst dst_ neigh_ neighbour arp_ ndisc_ icmp_ icmpv6_ igmp mld_ xfrm esp_ inet_addr_type inet_select_addr addrconf_ ipip_ gre_ vti_"},
	{"netfilter", "nf_ nft_ ipt_ ip6t_ xt_ iptable_ ip6table_ br_nf_ ebt_ ipv4_conntrack ctnetlink"},
	{"bridge", "br_ ovs_ bond_ team_ macvlan_ ipvlan_ vlan_ vxlan geneve"},
	{"queue", "dev_queue_xmit dev_xmit_skb dev_direct_xmit dev_loopback_xmit dev_hard_start_xmit xmit_one sch_direct_xmit qdisc_ validate_xmit netdev_pick_tx netdev_core_pick " +
		"net_tx_action netif_schedule netif_skb_features skb_gso_segment pfifo_ bfifo_ fq_ codel_ tbf_ htb_ hfsc_ cake_ netem_ red_ sfq_ prio_enqueue prio_dequeue tcf_ tc_run cls_ sch_handle"},
	{"napi", "net_rx_action napi_ gro_ dev_gro_receive process_backlog netif_receive_skb netif_rx enqueue_to_backlog get_rps_cpu rps_ busy_poll sk_busy_loop flush_backlog deliver_skb"},
	{"driver", "loopback_ veth_ virtnet_ free_old_xmit tun_ tap_ dummy_xmit ifb_ e1000 igb_ igc_ ixgbe i40e_ iavf_ ice_ mlx4_ mlx5 bnxt_ ena_ rtl8169 rtl_ tg3_ gve_ netvsc_ vmxnet3_ xennet_ xenvif_ nfp_ qede_ " +
		"stmmac_ mvneta_ mvpp2_ dpaa_ hns3_ ionic_ fec_enet ieee80211_ cfg80211_ mac80211_ iwl_ ath9k ath10k ath11k brcmf_ wg_ mana_ atl_ usbnet_"},
}

// layerOf is the layer of each prefix.
var layerOf = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for _, l := range netLayers {
		for p := range strings.FieldsSeq(l.prefixes) {
			m[p] = l.name
		}
	}
	return m
})

// NetLayer is the layer of a kernel stack: that of the innermost function that
// belongs to one. It is empty if the stack is not in the network code. An
// interrupt does not belong to the code that it interrupts.
func NetLayer(s *Stack) string {
	for i := range s.Frames {
		name := s.Frames[i].Sym
		if l := funcLayer(name); l != "" {
			return l
		}
		if isInterrupt(name) {
			return ""
		}
	}
	return ""
}

// funcLayer finds the longest prefix of a function's name.
func funcLayer(name string) string {
	name = strings.TrimLeft(name, "_")
	for _, arch := range []string{"x64_", "ia32_", "arm64_", "se_", "do_"} { // of system calls
		if call, ok := strings.CutPrefix(name, arch); ok && strings.HasPrefix(call, "sys_") {
			name = call
		}
	}
	for n := len(name); n > 1; n-- {
		if l := layerOf()[name[:n]]; l != "" {
			return l
		}
	}
	return ""
}

// isInterrupt reports whether an interrupt or a softirq begins in a function.
func isInterrupt(name string) bool {
	for _, p := range []string{
		"asm_sysvec_", "sysvec_", "asm_common_interrupt", "common_interrupt", "asm_exc_", "do_IRQ", "ret_from_intr", "el1_irq", "el1h_64_irq",
		"el0_irq", "el0t_64_irq", "__do_softirq", "handle_softirqs", "do_softirq", "____do_softirq", "run_ksoftirqd",
	} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
