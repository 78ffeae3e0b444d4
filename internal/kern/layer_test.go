// SPDX-License-Identifier: Apache-2.0

package kern

import (
	"strings"
	"testing"
)

// TestNetLayer: stacks as kernels show them, innermost function first.
func TestNetLayer(t *testing.T) {
	for _, c := range []struct{ stack, want string }{
		{"copy_user_enhanced_fast_string copyin _copy_from_iter skb_do_copy_data_nocache tcp_sendmsg_locked tcp_sendmsg sock_sendmsg __sys_sendto __x64_sys_sendto do_syscall_64", "tcp"},
		{"_raw_spin_lock_bh lock_sock_nested tcp_sendmsg inet_sendmsg sock_write_iter vfs_write", "socket"},
		{"__x64_sys_recvfrom do_syscall_64 entry_SYSCALL_64_after_hwframe", "socket"},
		{"skb_release_data __kfree_skb tcp_recvmsg_locked tcp_recvmsg inet6_recvmsg sock_read_iter", "tcp"},
		{"ip_finish_output2 __ip_queue_xmit __tcp_transmit_skb tcp_write_xmit", "ip"},
		{"tcp_v4_rcv ip_protocol_deliver_rcu ip_local_deliver_finish __netif_receive_skb_one_core process_backlog __napi_poll net_rx_action __do_softirq do_softirq __local_bh_enable_ip __dev_queue_xmit", "tcp"},
		{"eth_type_trans loopback_xmit dev_hard_start_xmit __dev_queue_xmit ip_finish_output2", "driver"},
		{"memcpy_erms virtnet_poll __napi_poll net_rx_action __softirqentry_text_start irq_exit_rcu common_interrupt", "driver"},
		{"kmem_cache_alloc_node __alloc_skb napi_alloc_skb page_to_skb.isra.0 net_rx_action", "napi"},
		{"sch_direct_xmit __qdisc_run net_tx_action handle_softirqs", "queue"},
		{"nf_hook_slow ip_local_out", "netfilter"},
		{"unix_stream_sendmsg sock_write_iter", "unix"},
		{"____sys_sendmsg ___sys_sendmsg __sys_sendmsg", "socket"},
		// The network is interrupted by others, and by them alone.
		{"update_curr task_tick_fair scheduler_tick tick_sched_timer sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt tcp_sendmsg", ""},
		{"rcu_do_batch rcu_core __do_softirq do_softirq __local_bh_enable_ip __dev_queue_xmit ip_finish_output2", ""},
		{"clear_page_erms get_page_from_freelist asm_exc_page_fault tcp_recvmsg", ""},
		{"ext4_file_write_iter vfs_write ksys_write do_syscall_64", ""},
		{"_raw_spin_lock rt_mutex_lock raw_spin_rq_lock_nested enable_irq", ""},
		{"__x64_sys_getppid do_syscall_64", ""},
		{"", ""},
	} {
		s := &Stack{}
		for f := range strings.FieldsSeq(c.stack) {
			s.Frames = append(s.Frames, Frame{Sym: f})
		}
		if got := NetLayer(s); got != c.want {
			t.Errorf("%s is %q, want %q", c.stack, got, c.want)
		}
	}
}
