package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	dulyTopic = "bench"
	dulyMax   = 100
)

// duly by HTTP, with its built-in queue.
type duly struct{ url string }

func newDuly(o options) system { return duly{o.url} }

// dulyClient is one kept connection. It speaks HTTP/1.1 itself: net/http takes as much processor time as the server.
type dulyClient struct {
	net.Conn
	host string
	in   *bufio.Reader
}

func (d duly) connect() (*dulyClient, error) {
	conn, err := net.Dial("tcp", d.url)
	if err != nil {
		return nil, err
	}
	return &dulyClient{conn, d.url, bufio.NewReaderSize(conn, 64<<10)}, nil
}

func (d duly) sender() (sender, error) { return d.connect() }

func (c *dulyClient) send(due time.Time, bodies [][]byte) error {
	var lines bytes.Buffer
	for _, body := range bodies {
		// The bodies are letters, digits and spaces: nothing needs an escape.
		fmt.Fprintf(&lines, `{"topic":"%s","deliver_at":%d,"body":"%s"}`+"\n", dulyTopic, due.UnixMilli(), body)
	}
	if len(bodies) == 1 {
		_, err := c.post("/v1/messages", "application/json", lines.Bytes())
		return err
	}
	answer, err := c.post("/v1/messages/batch", "application/x-ndjson", lines.Bytes())
	if err != nil {
		return err
	}
	if count := bytes.Count(answer, []byte(`"id":`)); count != len(bodies) || bytes.Contains(answer, []byte(`{"error"`)) {
		return fmt.Errorf("%d of %d accepted: %.300s", count, len(bodies), answer)
	}
	return nil
}

// post returns the body of an answer with a status of success.
func (c *dulyClient) post(path, kind string, body []byte) ([]byte, error) {
	request := fmt.Appendf(make([]byte, 0, len(body)+200),
		"POST %s HTTP/1.1\r\nhost: %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n", path, c.host, kind, len(body))
	if _, err := c.Write(append(request, body...)); err != nil {
		return nil, err
	}
	status, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	answer, err := c.body()
	if err == nil && !strings.HasPrefix(status, "HTTP/1.1 20") {
		err = fmt.Errorf("%s: %.300s", strings.TrimSpace(status), answer)
	}
	return answer, err
}

// body reads headers and the body, which has a length or comes in chunks.
func (c *dulyClient) body() ([]byte, error) {
	length, chunked := 0, false
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch strings.ToLower(name) {
		case "":
			if chunked {
				return c.chunks()
			}
			body := make([]byte, length)
			_, err := io.ReadFull(c.in, body)
			return body, err
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return nil, err
			}
		case "transfer-encoding":
			chunked = value == "chunked"
		}
	}
}

func (c *dulyClient) chunks() ([]byte, error) {
	var body []byte
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(line), 16, 32)
		if err != nil {
			return nil, err
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(c.in, chunk); err != nil {
			return nil, err
		}
		if size == 0 {
			return body, nil
		}
		body = append(body, chunk[:size]...)
	}
}

func (d duly) receive(ctx context.Context, consumers int, in *inbox) error {
	return eachConnection(ctx, consumers, func(ctx context.Context) error {
		client, err := d.connect()
		if err != nil {
			return err
		}
		defer context.AfterFunc(ctx, func() { client.Close() })()
		for {
			if err := client.receiveMany(in); err != nil {
				return err
			}
		}
	})
}

func (c *dulyClient) receiveMany(in *inbox) error {
	wanted := fmt.Appendf(nil, `{"max":%d,"wait":"1s","lease":"30s"}`, dulyMax)
	answer, err := c.post("/v1/queues/"+dulyTopic+"/receive", "application/json", wanted)
	if err != nil {
		return err
	}
	var received struct {
		Messages []struct{ Receipt, Body string }
	}
	if err := json.Unmarshal(answer, &received); err != nil || len(received.Messages) == 0 {
		return err
	}
	receipts := make([]string, len(received.Messages))
	for i, message := range received.Messages {
		in.got([]byte(message.Body))
		receipts[i] = message.Receipt
	}
	body, err := json.Marshal(map[string]any{"receipts": receipts})
	if err != nil {
		return err
	}
	if _, err := c.post("/v1/queues/"+dulyTopic+"/ack", "application/json", body); err != nil {
		return err
	}
	in.ack(len(receipts))
	return nil
}
