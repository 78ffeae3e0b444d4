// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/spf13/pflag"
)

// Latency is embedded in the config of tools that measure one.
type Latency struct {
	Min time.Duration `flag:"min" bpf:"min_ns" help:"only what took at least this long: 10ms"`
	Max time.Duration `flag:"max" bpf:"max_ns" help:"only what took at most this long"`
}

// Flags declares the fields of a config struct as flags:
//
//	Syscall bool `flag:"syscall" short:"s" bpf:"only_syscall" help:"…"`
func Flags(fs *pflag.FlagSet, cfg any) {
	eachField(reflect.ValueOf(cfg).Elem(), func(f reflect.StructField, v reflect.Value) {
		name, short, help := f.Tag.Get("flag"), f.Tag.Get("short"), f.Tag.Get("help")
		if name == "" {
			return
		}
		switch p := v.Addr().Interface().(type) {
		case *bool:
			fs.BoolVarP(p, name, short, *p, help)
		case *time.Duration:
			fs.VarP(&duration{p, *p > 0}, name, short, help)
		case *uint64:
			fs.Uint64VarP(p, name, short, *p, help)
		case *uint32:
			fs.Uint32VarP(p, name, short, *p, help)
		case *string:
			fs.StringVarP(p, name, short, *p, help)
		default:
			panic(fmt.Sprintf("flag %s: no flag for %T", name, p))
		}
	})
}

// duration is a flag that takes 10ms, 2s, and a bare number of seconds. One that
// is something by default cannot be nothing.
type duration struct {
	d    *time.Duration
	some bool
}

func (d *duration) String() string {
	if d.d == nil || *d.d == 0 {
		return ""
	}
	return d.d.String()
}
func (d *duration) Type() string { return "duration" }
func (d *duration) Set(s string) (err error) {
	if *d.d, err = ParseDuration(s); err == nil && d.some && *d.d == 0 {
		return fmt.Errorf("%q: must be more than nothing", s)
	}
	return err
}

// ParseDuration reads 10ms, 1.5s, 2m, or a bare number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	t := s
	if t != "" && strings.Trim(t, "0123456789.") == "" {
		t += "s"
	}
	d, err := time.ParseDuration(t)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: write 500ms, 10s or 2m", s)
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
