// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"seine/internal/row"
)

// settings are the values of config = { … } and of the environment: those settings of bpftrace
// that have an effect here.
type settings struct {
	strLen, mapKeys, catBytes, onStack, ringPages int
	maxProbes, maxPrograms                        int // 0: any number
	stackMode                                     string
	missing                                       string // "": what a pattern found may be missing, with a note
	license                                       string
	quiet                                         bool // maps are not printed at the end
	trailer                                       string
	unstable                                      map[string]string
	mangled                                       bool // names of C++ are as in the symbol table
	lines                                         bool // user stacks have files and lines
}

func defaults() settings {
	return settings{strLen: 256, catBytes: 64 << 10, onStack: 64, license: "GPL", trailer: ".."}
}

// A setting is one key of a config block.
type setting struct {
	pos, end   Pos
	key, value string
}

// A known setting takes a number, true or false, or one of some words.
type known struct {
	min, max int
	number   func(*settings) *int
	yes      func(*settings, bool)
	words    []string
	word     func(*settings) *string // with no words, any text
	unstable string                  // its name, if it is one of these
	idle     string                  // why it changes nothing here
}

// knownSettings are all that bpftrace has, by their names of today.
var knownSettings = map[string]known{
	"max_strlen":         {min: 1, max: 8192, number: func(s *settings) *int { return &s.strLen }},
	"max_map_keys":       {min: 1, max: 10_000_000, number: func(s *settings) *int { return &s.mapKeys }},
	"max_cat_bytes":      {min: 1, max: 1 << 24, number: func(s *settings) *int { return &s.catBytes }},
	"max_probes":         {min: 1, max: 1 << 30, number: func(s *settings) *int { return &s.maxProbes }},
	"max_bpf_progs":      {min: 1, max: 1 << 30, number: func(s *settings) *int { return &s.maxPrograms }},
	"on_stack_limit":     {min: 0, max: 256, number: func(s *settings) *int { return &s.onStack }},
	"perf_rb_pages":      {min: 1, max: 1 << 18, number: func(s *settings) *int { return &s.ringPages }},
	"print_maps_on_exit": {yes: func(s *settings, yes bool) { s.quiet = !yes }},
	"stack_mode":         {words: []string{"bpftrace", "perf", "raw", buildIDs}, word: func(s *settings) *string { return &s.stackMode }},
	"missing_probes":     {words: []string{"error", "warn", "ignore"}, word: func(s *settings) *string { return &s.missing }},
	"license": {words: []string{"GPL", "GPL v2", "GPL and additional rights", "Dual BSD/GPL", "Dual MIT/GPL", "Dual MPL/GPL"},
		word: func(s *settings) *string { return &s.license }},

	"str_trunc_trailer": {word: func(s *settings) *string { return &s.trailer }},
	"cpp_demangle":      {yes: func(s *settings, yes bool) { s.mangled = !yes }},
	"show_debug_info":   {yes: func(s *settings, yes bool) { s.lines = yes }},

	"cache_user_symbols":      {idle: "symbols are kept for each process"},
	"lazy_symbolication":      {idle: "symbols are looked up when they are printed"},
	"log_size":                {idle: "the verifier's log has the room it needs"},
	"max_ast_nodes":           {idle: "the size of a program is bounded otherwise"},
	"max_type_res_iterations": {idle: "the search for types is bounded otherwise"},
	"symbol_source":           {idle: "symbols come from the ELF file"},
	"use_blazesym":            {idle: "symbols are looked up by seine itself"},
	"no_user_symbols":         {idle: "symbols are looked up when they are printed"},
	"unstable_dw_ustack":      {idle: "stacks are walked by frame pointers"},
	"verify_llvm_ir":          {idle: "there is no LLVM"},
	"debug_output":            {idle: "--listing prints the instructions"},
	"btf":                     {idle: "types come from the running kernel"},
	"vmlinux":                 {idle: "types come from the running kernel"},
	"kernel_source":           {idle: "types come from the running kernel"},
	"kernel_build":            {idle: "types come from the running kernel"},
	"color":                   {idle: "output has no colours"},
}

// oldNames are what settings were called in earlier releases of bpftrace.
var oldNames = map[string]string{"strlen": "max_strlen", "map_keys_max": "max_map_keys", "cat_bytes_max": "max_cat_bytes"}

// settingName makes stack_mode of BPFTRACE_STACK_MODE and STACK_MODE.
func settingName(key string) string {
	name := strings.TrimPrefix(strings.ToLower(key), "bpftrace_")
	if today := oldNames[name]; today != "" {
		return today
	}
	return name
}

// settingOf looks up a setting by any of its names.
func settingOf(key string) (known, bool) {
	name := settingName(key)
	if _, ok := unstable[name]; ok {
		return known{unstable: name}, true
	}
	k, ok := knownSettings[name]
	return k, ok
}

// configure applies the settings of the script, then those of the environment, which override
// them.
func (p *Program) configure() error {
	p.set = defaults()
	for _, s := range p.Script.Config {
		k, ok := settingOf(s.key)
		if !ok {
			return p.Script.Src.errorf(s.pos, s.end, "unknown setting %s%s", s.key, nearSetting(s.key))
		}
		if k.idle != "" {
			p.opts.note("config: %s has no effect: %s", s.key, k.idle)
		} else if want := k.apply(&p.set, s.value); want != "" {
			return p.Script.Src.errorf(s.pos, s.end, "config: %s is %s, not %s", s.key, want, s.value)
		}
	}
	for _, e := range p.opts.Environment {
		key, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(key, "BPFTRACE_") {
			continue
		}
		switch k, ok := settingOf(key); {
		case !ok:
			p.opts.note("the variable %s is not a setting%s", key, nearSetting(key))
		case k.idle != "":
			p.opts.note("the variable %s has no effect: %s", key, k.idle)
		default:
			if want := k.apply(&p.set, value); want != "" {
				return p.Script.Src.errorf(0, 0, "the variable %s is %s, not %q", key, want, value)
			}
		}
	}
	p.c.set = p.set
	return p.stable()
}

func nearSetting(key string) string {
	near := row.Nearest(settingName(key), slices.Sorted(maps.Keys(knownSettings)))
	if near == "" {
		return ""
	}
	if strings.HasPrefix(key, "BPFTRACE_") {
		near = "BPFTRACE_" + strings.ToUpper(near)
	}
	return ": did you mean " + near + "?"
}

// apply sets a value, or says what it should be.
func (k *known) apply(s *settings, value string) (want string) {
	switch {
	case k.number != nil:
		n, ok := number(value)
		if !ok || n < uint64(k.min) || n > uint64(k.max) {
			return "a number from " + strconv.Itoa(k.min) + " to " + strconv.Itoa(k.max)
		}
		*k.number(s) = int(n)
	case k.yes != nil:
		switch strings.ToLower(value) {
		case "true", "1":
			k.yes(s, true)
		case "false", "0":
			k.yes(s, false)
		default:
			return "true or false"
		}
	case k.unstable != "":
		return k.allow(s, value)
	default:
		if k.words != nil && !slices.Contains(k.words, value) {
			return "one of " + strings.Join(k.words, ", ")
		}
		*k.word(s) = value
	}
	return ""
}
