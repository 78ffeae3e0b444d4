// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/cilium/ebpf/btf"
)

// userTypes are the prototypes of a file's functions, from its DWARF.
type userTypes struct {
	data  *dwarf.Data
	types map[dwarf.Type]btf.Type
}

// userProtos caches the types of files: a clause with many functions asks for each of them.
type userProtos struct {
	mu    sync.Mutex
	files map[string]func() (*userTypes, error)
}

// proto is the prototype of a function of a file.
func (u *userProtos) proto(path, name string) (*btf.FuncProto, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.files == nil {
		u.files = map[string]func() (*userTypes, error){}
	}
	if u.files[path] == nil {
		u.files[path] = sync.OnceValues(func() (*userTypes, error) { return readDWARF(path) })
	}
	t, err := u.files[path]()
	if err != nil {
		return nil, err
	}
	return t.proto(name)
}

var errNoDWARF = errors.New("the file has no DWARF (cc -g makes it), and there is none under /usr/lib/debug")

// debugFiles is where distributions keep DWARF, by the build ids of files. Tests have another.
var debugFiles = "/usr/lib/debug/.build-id"

// readDWARF reads the DWARF of a file, or that which a distribution keeps apart.
func readDWARF(path string) (*userTypes, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if f.Section(".debug_info") == nil && f.Section(".zdebug_info") == nil {
		id := buildIDOf(f)
		if len(id) < 2 {
			return nil, errNoDWARF
		}
		h := hex.EncodeToString(id)
		apart, err := elf.Open(filepath.Join(debugFiles, h[:2], h[2:]+".debug"))
		if errors.Is(err, os.ErrNotExist) {
			return nil, errNoDWARF
		}
		if err != nil {
			return nil, err
		}
		defer apart.Close()
		f = apart
	}
	data, err := f.DWARF()
	if err != nil {
		return nil, err
	}
	return &userTypes{data, map[dwarf.Type]btf.Type{}}, nil
}

// buildIDOf is the number that the linker gave a file.
func buildIDOf(f *elf.File) []byte {
	s := f.Section(".note.gnu.build-id")
	if s == nil {
		return nil
	}
	const head = 16 // three lengths and GNU
	note, err := s.Data()
	if err != nil || len(note) < head {
		return nil
	}
	return note[head:]
}

const langGo = 0x16

// proto looks for a function by its name, or by that of its symbol.
func (u *userTypes) proto(name string) (*btf.FuncProto, error) {
	r := u.data.Reader()
	var language int64
	for {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		switch {
		case e == nil:
			return nil, fmt.Errorf("the DWARF of the file has no function %s", name)
		case e.Tag == dwarf.TagCompileUnit:
			language, _ = e.Val(dwarf.AttrLanguage).(int64)
		case e.Tag == dwarf.TagSubprogram && e.Val(dwarf.AttrDeclaration) == nil && (e.Val(dwarf.AttrName) == name || e.Val(dwarf.AttrLinkageName) == name):
			if language == langGo {
				return nil, errors.New(`a function of Go gets them otherwise than one of C: use reg("ax")`)
			}
			return u.params(r, e)
		case e.Tag != dwarf.TagNamespace:
			r.SkipChildren()
		}
	}
}

// params reads what the function that the reader stands at takes and returns.
func (u *userTypes) params(r *dwarf.Reader, fn *dwarf.Entry) (*btf.FuncProto, error) {
	returns, err := u.of(fn)
	if err != nil {
		return nil, err
	}
	proto := &btf.FuncProto{Return: returns}
	for fn.Children {
		e, err := r.Next()
		if err != nil {
			return nil, err
		}
		if e == nil || e.Tag == 0 {
			break
		}
		if e.Tag == dwarf.TagFormalParameter {
			t, err := u.of(e)
			if err != nil {
				return nil, err
			}
			name, _ := e.Val(dwarf.AttrName).(string)
			proto.Params = append(proto.Params, btf.FuncParam{Name: name, Type: t})
		}
		r.SkipChildren()
	}
	return proto, nil
}

// of is the type of a variable or parameter that an entry describes.
func (u *userTypes) of(e *dwarf.Entry) (btf.Type, error) {
	off, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
	if !ok {
		return &btf.Void{}, nil
	}
	t, err := u.data.Type(off)
	if err != nil {
		return nil, err
	}
	return u.typ(t), nil
}

// typ turns a DWARF type into a BTF type. Structs may refer to themselves.
func (u *userTypes) typ(t dwarf.Type) btf.Type {
	if known := u.types[t]; known != nil {
		return known
	}
	switch v := t.(type) {
	case *dwarf.CharType, *dwarf.IntType:
		return &btf.Int{Name: v.String(), Size: uint32(v.Size()), Encoding: btf.Signed}
	case *dwarf.UcharType, *dwarf.UintType, *dwarf.AddrType:
		return &btf.Int{Name: v.String(), Size: uint32(v.Size())}
	case *dwarf.BoolType:
		return &btf.Int{Name: v.String(), Size: uint32(v.Size()), Encoding: btf.Bool}
	case *dwarf.FloatType:
		return &btf.Float{Name: v.String(), Size: uint32(v.Size())}
	case *dwarf.QualType:
		return u.typ(v.Type)
	case *dwarf.TypedefType:
		def := &btf.Typedef{Name: v.Name}
		u.types[t] = def
		def.Type = u.typ(v.Type)
		return def
	case *dwarf.PtrType:
		p := &btf.Pointer{}
		u.types[t] = p
		p.Target = u.typ(v.Type)
		return p
	case *dwarf.ArrayType:
		return &btf.Array{Index: &btf.Int{Size: 4}, Type: u.typ(v.Type), Nelems: uint32(max(v.Count, 0))}
	case *dwarf.EnumType:
		e := &btf.Enum{Name: v.EnumName, Size: uint32(v.ByteSize)}
		for _, val := range v.Val {
			e.Values = append(e.Values, btf.EnumValue{Name: val.Name, Value: uint64(val.Val)})
			e.Signed = e.Signed || val.Val < 0
		}
		return e
	case *dwarf.StructType:
		return u.record(v)
	}
	return &btf.Void{}
}

func (u *userTypes) record(v *dwarf.StructType) btf.Type {
	var members *[]btf.Member
	if v.Kind == "union" {
		r := &btf.Union{Name: v.StructName, Size: uint32(max(v.ByteSize, 0))}
		u.types[v], members = r, &r.Members
	} else {
		r := &btf.Struct{Name: v.StructName, Size: uint32(max(v.ByteSize, 0))}
		u.types[v], members = r, &r.Members
	}
	for _, f := range v.Field {
		m := btf.Member{Name: f.Name, Type: u.typ(f.Type), Offset: btf.Bits(f.ByteOffset * 8), BitfieldSize: btf.Bits(f.BitSize)}
		switch {
		case f.BitSize != 0 && f.DataBitOffset != 0:
			m.Offset = btf.Bits(f.DataBitOffset)
		case f.BitSize != 0 && f.ByteSize != 0: // DWARF 3: from the other end
			m.Offset += btf.Bits(f.ByteSize*8 - f.BitOffset - f.BitSize)
		}
		*members = append(*members, m)
	}
	return u.types[v]
}

// inRegister says that an argument of this type is in an integer register. An argument of another
// type changes the registers of those behind it.
func inRegister(t btf.Type) bool {
	switch skipQualifiers(t).(type) {
	case *btf.Int, *btf.Enum, *btf.Pointer:
		size, err := btf.Sizeof(t)
		return err == nil && size <= 8
	}
	return false
}
