.nh
.TH "SEINE-SOFTIRQS" "8" "Nov 2026" "seine" "seine"

.SH NAME
seine-softirqs - time, count and maximum of softirqs, and their wait


.SH SYNOPSIS
\fBseine softirqs [flags] [interval [count]]\fP


.SH DESCRIPTION
How much time do softirqs take, the network's above all, and how long do they wait to be run?

.PP
For each kind of softirq how often it ran, for how long in all, on average and at the most; or the distribution of the times. With
\fB--raise\fR also how long it was from being raised to being run.

.PP
What it misses:
.IP \(bu 2
Interrupts that came while a softirq ran are in its time.
.IP \(bu 2
Work that was taken out of softirqs: threaded NAPI, ksoftirqd's waiting for a processor (which is in the wait, not in the run).
.IP \(bu 2
The wait of a softirq that was raised again while the kernel was about to run it: such a run has no wait of its own, so there are a few
less waits than runs.
.IP \(bu 2
On kernels with PREEMPT_RT a softirq can be preempted, and the time is that of the clock.


.SH OPTIONS
\fB--dist\fP[=false]
	distributions of the times, as histograms

.PP
\fB-C\fP, \fB--counts\fP[=false]
	only how often, which costs less

.PP
\fB--net\fP[=false]
	only what belongs to networking

.PP
\fB--raise\fP[=false]
	also the wait from being raised to being run

.PP
\fB-o\fP, \fB--output\fP="table"
	format: table, json, csv

.PP
\fB--columns\fP=""
	columns to show: a,b,c or +a,-b; help lists them

.PP
\fB-d\fP, \fB--duration\fP=
	stop after this long: 10s, 2m

.PP
\fB-n\fP, \fB--count\fP=0
	stop after so many rows or outputs

.PP
\fB-i\fP, \fB--interval\fP=
	an output this often: 1s, 500ms

.PP
\fB--no-clear\fP[=false]
	do not clear the screen between outputs

.PP
\fB--sort\fP=""
	order the rows of an output: COLUMN or COLUMN,asc

.PP
\fB--top\fP=0
	only the first N rows of an output

.PP
\fB--by\fP=""
	group by these columns

.PP
\fB--where\fP=""
	keep rows for which this holds: 'lport == 80 && comm == "nginx"'

.PP
\fB--time\fP=""
	how the time column reads: clock, iso, rel, unix, none

.PP
\fB--buffer\fP=
	size of the ring between kernel and seine (default 4M)

.PP
\fB--memory\fP=
	budget for the kernel side's maps (default 32M)

.PP
\fB--stats\fP[=false]
	at the end, say what the run cost

.PP
\fB--way\fP=[]
	force a way in: WAY or POINT=WAY

.PP
\fB-v\fP, \fB--verbose\fP[=0]
	explain what is attached and why; -vv adds the verifier's log

.PP
\fB-h\fP, \fB--help\fP[=false]
	help for softirqs


.SH EXAMPLE
.EX
  seine softirqs                       # until Ctrl-C
  seine softirqs 1                     # every second
  seine softirqs --net --by cpu,softirq    # NET_RX and NET_TX, by processor
  seine softirqs --dist --net          # histograms
  seine softirqs --raise               # with the wait from raise to run
  seine softirqs -C                    # only how often
.EE


.SH SEE ALSO
\fBseine(8)\fP
