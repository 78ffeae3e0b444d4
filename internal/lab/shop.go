// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Shop is a service with a fault in it: browser asks web, web asks db for each page, on
// connections of their own. Web serves one page at a time, and listens with a small backlog.
type Shop struct {
	Think    time.Duration // of db
	Backlog  int           // of web
	Browsers int           // threads of browser
	Pages    int           // for all of them
}

const (
	bodyShopDB      = "shop-db"
	bodyShopWeb     = "shop-web"
	bodyShopBrowser = "shop-browser"
	dbAddr, webAddr = "127.0.0.1:5432", "127.0.0.1:8080"
)

func init() {
	Register(bodyShopDB, func(c *Child) error {
		return shopServer(c, dbAddr, func(s Shop) error { time.Sleep(s.Think); return nil })
	})
	Register(bodyShopWeb, func(c *Child) error { return shopServer(c, webAddr, func(Shop) error { return shopAsk(dbAddr) }) })
	Register(bodyShopBrowser, shopBrowser)
}

// RunShop runs the shop in a host until the browser has asked for all pages.
func RunShop(w *World, host string, s Shop) error {
	for _, p := range []struct{ comm, body string }{{"db", bodyShopDB}, {"web", bodyShopWeb}} {
		child, err := w.Start(host, p.comm, p.body, s)
		if err == nil {
			err = child.Expect(new(bool))
		}
		if err != nil {
			return err
		}
	}
	browser, err := w.Start(host, "browser", bodyShopBrowser, s)
	if err != nil {
		return err
	}
	return browser.Expect(new(bool))
}

// shopServer answers a request on each connection, one after the other.
func shopServer(c *Child, addr string, work func(Shop) error) error {
	var s Shop
	if err := c.Arg(&s); err != nil {
		return err
	}
	l, _, err := Listen(TCP4, addr, s.Backlog)
	if err != nil {
		return err
	}
	if err := c.Report(true); err != nil {
		return err
	}
	page := make([]byte, 2000)
	for {
		fd, err := Accept(l)
		if err != nil {
			return err
		}
		if n, err := unix.Read(fd, page); err == nil && n > 0 {
			if err := work(s); err != nil {
				return err
			}
			unix.Write(fd, page)
		}
		Close(fd)
	}
}

// shopAsk asks for one page.
func shopAsk(addr string) error {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(make([]byte, 300)); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	if err == nil && n == 0 {
		err = fmt.Errorf("%s: no answer", addr)
	}
	return err
}

func shopBrowser(c *Child) error {
	var s Shop
	if err := c.Arg(&s); err != nil {
		return err
	}
	var asked atomic.Int64
	var wait sync.WaitGroup
	errs := make([]error, s.Browsers)
	for i := range s.Browsers {
		wait.Go(func() {
			for errs[i] == nil && asked.Add(1) <= int64(s.Pages) {
				errs[i] = shopAsk(webAddr)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.Report(true)
}
