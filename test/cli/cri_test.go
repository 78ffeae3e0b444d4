// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// A cri is a containerd of the test's own, with its state where containerd usually has it, in a
// mount namespace of its own. Pods of the host's network are in the world.
type cri struct {
	t      *testing.T
	cmd    *exec.Cmd
	socket string
	client *http.Client
}

// podImage is the only image, also that of the container that holds a pod together.
const podImage = "seine.test/pod:1"

func startCRI(t *testing.T, w agentWorld) *cri {
	t.Helper()
	for _, name := range []string{"containerd", "ctr", "runc", "containerd-shim-runc-v2"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%v: apt-get install containerd runc", err)
		}
	}
	dir := t.TempDir()
	c := &cri{t: t, socket: filepath.Join(dir, "containerd.sock")}
	config := fmt.Sprintf(`version = 2
root = %q
state = "/run/containerd"
[grpc]
address = %q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
`, filepath.Join(dir, "root"), c.socket, podImage)
	file := filepath.Join(dir, "config.toml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("/run/containerd", 0o711); err != nil {
		t.Fatal(err)
	}
	said := &bytes.Buffer{}
	c.cmd = exec.Command("sh", "-c", `mount --make-rprivate / && mount -t tmpfs none /run/containerd && exec containerd --config "$0"`, file)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Setpgid: true}
	c.cmd.Stdout, c.cmd.Stderr = said, said
	if err := w.Do("", c.cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.cmd.Process.Signal(syscall.SIGTERM)
		c.cmd.Wait()
		if t.Failed() {
			t.Logf("containerd: %.20000s", said)
		}
	})
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	c.client = &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	}}}
	for end := time.Now().Add(agentPatience); ; time.Sleep(100 * time.Millisecond) {
		if _, err := c.call("Version", nil); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("containerd does not answer: %v", err)
		}
	}
	archive := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(archive, image(t, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := c.inside("ctr", "--address", c.socket, "--namespace", "k8s.io", "images", "import", "--snapshotter", "native", archive).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return c
}

// inside is a command that sees containerd's state.
func (c *cri) inside(name string, args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{fmt.Sprintf("--mount=/proc/%d/ns/mnt", c.cmd.Process.Pid), "--", name}, args...)...)
}

// call calls a method of the runtime service. The first field of the answer is an id.
func (c *cri) call(method string, request []byte) (id string, err error) {
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...)
	ctx, cancel := context.WithTimeout(context.Background(), agentPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://cri/runtime.v1.RuntimeService/"+method, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := c.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	status, said := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if status == "" {
		status, said = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	if status != "0" {
		return "", fmt.Errorf("%s: status %s: %s", method, status, said)
	}
	if len(b) > 5 {
		if number, kind, n := protowire.ConsumeTag(b[5:]); number == 1 && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[5+n:])
			id = string(v)
		}
	}
	return id, nil
}

func (c *cri) must(method string, fields ...field) string {
	c.t.Helper()
	id, err := c.call(method, message(fields...))
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// A field is one of a protocol buffer: a number of a string, of a message, or of an integer.
type field struct {
	number protowire.Number
	value  any
}

func message(fields ...field) (out []byte) {
	for _, f := range fields {
		switch v := f.value.(type) {
		case string:
			out = protowire.AppendString(protowire.AppendTag(out, f.number, protowire.BytesType), v)
		case []byte:
			out = protowire.AppendBytes(protowire.AppendTag(out, f.number, protowire.BytesType), v)
		case int:
			out = protowire.AppendVarint(protowire.AppendTag(out, f.number, protowire.VarintType), uint64(v))
		}
	}
	return out
}

// pod makes a pod of the host's network with one container.
func (c *cri) pod(namespace, name, container string, command ...string) (pod string) {
	c.t.Helper()
	const node = 2
	parent := fmt.Sprintf("/seine-pods-%d", os.Getpid())
	config := message(
		field{1, message(field{1, name}, field{2, "uid-" + name}, field{3, namespace})},
		field{8, message(field{1, parent}, field{2, message(field{1, message(field{1, node})})})},
	)
	pod = c.must("RunPodSandbox", field{1, config})
	c.t.Cleanup(func() {
		c.call("StopPodSandbox", message(field{1, pod}))
		c.call("RemovePodSandbox", message(field{1, pod}))
		for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
			left, _ := filepath.Glob(root + parent)
			for _, dir := range left {
				os.Remove(dir)
			}
		}
	})
	fields := []field{{1, message(field{1, container})}, {2, message(field{1, podImage})}}
	for _, word := range command {
		fields = append(fields, field{3, word})
	}
	id := c.must("CreateContainer", field{1, pod}, field{2, message(fields...)}, field{3, config})
	c.must("StartContainer", field{1, id})
	return pod
}

// image is an archive with one image, of one program.
func image(t *testing.T, dir string) []byte {
	t.Helper()
	program := filepath.Join(dir, "pod")
	build := exec.Command("go", "build", "-o", program, "./testdata/pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	pack := func(files ...any) []byte {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		for i := 0; i < len(files); i += 2 {
			data := files[i+1].([]byte)
			if err := w.WriteHeader(&tar.Header{Name: files[i].(string), Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
				t.Fatal(err)
			}
			w.Write(data)
		}
		w.Close()
		return out.Bytes()
	}
	type object = map[string]any
	digest := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	describe := func(kind string, b []byte) object {
		return object{"mediaType": kind, "digest": digest(b), "size": len(b)}
	}
	layer := pack("pod", b)
	config := text(object{"architecture": runtime.GOARCH, "os": "linux", "config": object{"Entrypoint": []string{"/pod"}, "Cmd": []string{"pause"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{digest(layer)}}})
	manifest := text(object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": describe("application/vnd.oci.image.config.v1+json", config), "layers": []object{describe("application/vnd.oci.image.layer.v1.tar", layer)}})
	top := describe("application/vnd.oci.image.manifest.v1+json", manifest)
	top["annotations"] = object{"io.containerd.image.name": podImage}
	blob := func(b []byte) string { return "blobs/sha256/" + digest(b)[len("sha256:"):] }
	return pack("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json", text(object{"schemaVersion": 2, "manifests": []object{top}}),
		blob(manifest), manifest, blob(config), config, blob(layer), layer)
}
