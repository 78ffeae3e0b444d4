// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// The holder and the front exchange frames: the length of the rest (4 bytes, big endian), the
// number of the question (4), an HTTP status (2; 0 in questions), and the text. A question
// is JSON. Answers come in any order. The holder does not trust the front.
const (
	frameHead    = 10
	mostQuestion = 16 << 10
	mostAnswer   = 256 << 20
	mostAtOnce   = 8
	slowest      = 10 * time.Second // the other side must take a frame within this time
)

// A question is a request of the front.
type question struct {
	What   string     `json:"what"`
	Params url.Values `json:"params,omitempty"`
}

// Answerer answers a question. The parameter what is its name, such as "services".
type Answerer func(ctx context.Context, what string, params url.Values) (status int, body []byte)

func writeFrame(conn net.Conn, number uint32, status uint16, body []byte) error {
	frame := make([]byte, frameHead, frameHead+len(body))
	binary.BigEndian.PutUint32(frame, uint32(frameHead-4+len(body)))
	binary.BigEndian.PutUint32(frame[4:], number)
	binary.BigEndian.PutUint16(frame[8:], status)
	if err := conn.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
		return err
	}
	_, err := conn.Write(append(frame, body...))
	return err
}

func readFrame(r io.Reader, most uint32) (number uint32, status uint16, body []byte, err error) {
	var head [frameHead]byte
	if _, err = io.ReadFull(r, head[:]); err != nil {
		return 0, 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < frameHead-4 || size > most {
		return 0, 0, nil, fmt.Errorf("a frame of %d bytes", size)
	}
	body = make([]byte, size-(frameHead-4))
	_, err = io.ReadFull(r, body)
	return binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint16(head[8:]), body, err
}

// Serve answers the questions that come over conn until it is closed or ctx ends.
func Serve(ctx context.Context, conn net.Conn, answer Answerer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var write sync.Mutex
	var wait sync.WaitGroup
	defer wait.Wait()
	defer conn.Close()
	room := make(chan struct{}, mostAtOnce)
	for {
		number, _, body, err := readFrame(conn, mostQuestion)
		if err != nil {
			if errors.Is(err, io.EOF) || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("front: %w", err)
		}
		var q question
		if err := json.Unmarshal(body, &q); err != nil {
			return fmt.Errorf("front: %w", err)
		}
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		wait.Go(func() {
			defer func() { <-room }()
			status, out := answer(ctx, q.What, q.Params)
			write.Lock()
			defer write.Unlock()
			if err := writeFrame(conn, number, uint16(status), out); err != nil {
				stop() // after a partial frame the stream is useless
			}
		})
	}
}

// A Client asks the holder. Its methods are safe for concurrent use.
type Client struct {
	conn  net.Conn
	write sync.Mutex

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]chan reply
	err     error
	gone    chan struct{}
}

type reply struct {
	status int
	body   []byte
}

// NewClient makes a client on a connection to the holder.
func NewClient(conn net.Conn) *Client {
	c := &Client{conn: conn, waiting: map[uint32]chan reply{}, gone: make(chan struct{})}
	go c.read()
	return c
}

// Gone is closed when the connection to the holder ends.
func (c *Client) Gone() <-chan struct{} { return c.gone }

func (c *Client) read() {
	for {
		number, status, body, err := readFrame(c.conn, mostAnswer)
		c.mu.Lock()
		if err != nil {
			c.err = fmt.Errorf("the holder is gone: %w", err)
			c.mu.Unlock()
			close(c.gone)
			return
		}
		if to := c.waiting[number]; to != nil {
			delete(c.waiting, number)
			to <- reply{int(status), body}
		}
		c.mu.Unlock()
	}
}

// Ask asks one question.
func (c *Client) Ask(ctx context.Context, what string, params url.Values) (status int, body []byte, err error) {
	b, err := json.Marshal(question{what, params})
	if err != nil {
		return 0, nil, err
	}
	if len(b) > mostQuestion-frameHead {
		return http.StatusRequestURITooLong, []byte(`{"error":"the question is too long"}`), nil
	}
	to := make(chan reply, 1)
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return 0, nil, c.err
	}
	c.next++
	number := c.next
	c.waiting[number] = to
	c.mu.Unlock()
	c.write.Lock()
	err = writeFrame(c.conn, number, 0, b)
	c.write.Unlock()
	if err == nil {
		select {
		case r := <-to:
			return r.status, r.body, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.gone:
			err = c.err
		}
	}
	c.mu.Lock()
	delete(c.waiting, number)
	c.mu.Unlock()
	return 0, nil, err
}
