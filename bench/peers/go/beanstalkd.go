package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"
)

// beanstalkd by its text protocol. Delays are whole seconds: they are rounded up, so that nothing comes early.
type beanstalkd struct{ url string }

func newBeanstalkd(o options) system { return beanstalkd{o.url} }

type beanstalkdClient struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer
}

func (b beanstalkd) connect() (*beanstalkdClient, error) {
	conn, err := net.Dial("tcp", b.url)
	if err != nil {
		return nil, err
	}
	return &beanstalkdClient{conn, bufio.NewReaderSize(conn, 64<<10), bufio.NewWriterSize(conn, 64<<10)}, nil
}

func (b beanstalkd) sender() (sender, error) { return b.connect() }

// send has no call for many: it writes all commands and reads their answers after that.
func (c *beanstalkdClient) send(due time.Time, bodies [][]byte) error {
	wrote := make(chan error, 1)
	go func() {
		for _, body := range bodies {
			delay := max(0, int(math.Ceil(time.Until(due).Seconds())))
			fmt.Fprintf(c.out, "put 1024 %d 600 %d\r\n%s\r\n", delay, len(body), body)
		}
		wrote <- c.out.Flush()
	}()
	for range bodies {
		if _, err := c.answer("INSERTED"); err != nil {
			return err
		}
	}
	return <-wrote
}

// answer reads a line that must begin with this word, and returns the other words.
func (c *beanstalkdClient) answer(word string) ([]string, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(line)
	if len(fields) == 0 || fields[0] != word {
		return nil, fmt.Errorf("expected %s, read %q", word, line)
	}
	return fields[1:], nil
}

func (b beanstalkd) receive(ctx context.Context, consumers int, in *inbox) error {
	return eachConnection(ctx, consumers, func(ctx context.Context) error {
		client, err := b.connect()
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { client.Close() })()
		for {
			if err := client.receiveOne(in); err != nil {
				return err
			}
		}
	})
}

func (c *beanstalkdClient) receiveOne(in *inbox) error {
	if _, err := io.WriteString(c, "reserve\r\n"); err != nil {
		return err
	}
	job, err := c.answer("RESERVED")
	if err != nil {
		return err
	}
	var id, size int
	if _, err := fmt.Sscan(strings.Join(job, " "), &id, &size); err != nil {
		return err
	}
	body := make([]byte, size+len("\r\n"))
	if _, err := io.ReadFull(c.in, body); err != nil {
		return err
	}
	in.got(bytes.TrimSuffix(body, []byte("\r\n")))
	if _, err := fmt.Fprintf(c, "delete %d\r\n", id); err != nil {
		return err
	}
	if _, err := c.answer("DELETED"); err != nil {
		return err
	}
	in.ack(1)
	return nil
}
