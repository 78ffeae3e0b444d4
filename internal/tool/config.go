// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cilium/ebpf"
)

// Latency is embedded in the config of tools that measure one.
type Latency struct {
	Min time.Duration `flag:"min" bpf:"min_ns" help:"only what took at least this long: 10ms"`
	Max time.Duration `flag:"max" bpf:"max_ns" help:"only what took at most this long"`
}

// A Setting is a field of a config struct that a user can set:
//
//	Syscall bool `flag:"syscall" short:"s" bpf:"only_syscall" help:"…"`
type Setting struct {
	Name, Short, Help string
	Value             any // *bool, *time.Duration, *uint64, *uint32 or *string: the field itself
}

// Settings lists the fields of a config struct that have a flag tag.
func Settings(cfg any) (out []Setting) {
	eachField(reflect.ValueOf(cfg).Elem(), func(f reflect.StructField, v reflect.Value) {
		if name := f.Tag.Get("flag"); name != "" {
			out = append(out, Setting{name, f.Tag.Get("short"), f.Tag.Get("help"), v.Addr().Interface()})
		}
	})
	return out
}

// ParseDuration reads 10ms, 1.5s, 2m, or a bare number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	t := s
	if t != "" && strings.Trim(t, "0123456789.") == "" {
		t += "s"
	}
	d, err := time.ParseDuration(t)
	if err != nil {
		return 0, fmt.Errorf("%q is not a valid duration: write 500ms, 10s or 2m", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q: a duration cannot be negative", s)
	}
	return d, nil
}

func eachField(v reflect.Value, do func(reflect.StructField, reflect.Value)) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			eachField(v.Field(i), do)
		} else if f.IsExported() {
			do(f, v.Field(i))
		}
	}
}

// Constants writes the fields of cfg that have a bpf tag into the object.
func Constants(spec *ebpf.CollectionSpec, cfg any) (err error) {
	eachField(reflect.ValueOf(cfg).Elem(), func(f reflect.StructField, v reflect.Value) {
		name := f.Tag.Get("bpf")
		if name == "" || err != nil {
			return
		}
		val := v.Interface()
		switch x := val.(type) {
		case time.Duration:
			val = uint64(x)
		case string: // an array of characters, which ends in a NUL at least
			size := 0
			if c, ok := spec.Variables[name]; ok {
				size = int(c.Size())
			}
			if len(x) >= size && size > 0 {
				err = Usagef("--%s %s: at most %d characters", f.Tag.Get("flag"), x, size-1)
				return
			}
			val = append([]byte(x), make([]byte, max(size-len(x), 0))...)
		}
		err = setConstant(spec, name, val)
	})
	return err
}

func setConstant(spec *ebpf.CollectionSpec, name string, val any) error {
	v, ok := spec.Variables[name]
	if !ok {
		return fmt.Errorf("constant %s: not in the object", name)
	}
	if err := v.Set(val); err != nil {
		return fmt.Errorf("constant %s: %w", name, err)
	}
	return nil
}
