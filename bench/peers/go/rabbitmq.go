package main

import (
	"context"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	waiting  = "bench.waiting"
	ready    = "bench.ready"
	prefetch = 100
)

// rabbitmq delays by expiry: messages expire in a queue without consumers and are dead-lettered to the queue of the consumers.
// Only the head of a queue expires, so due times must come in the order of sending; all phases do.
type rabbitmq struct{ url string }

func newRabbitmq(o options) system { return rabbitmq{"amqp://guest:guest@" + o.url + "/"} }

type rabbitmqSender struct{ *amqp.Channel }

func (r rabbitmq) channel() (*amqp.Connection, *amqp.Channel, error) {
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return nil, nil, err
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, nil, err
	}
	if _, err := channel.QueueDeclare(ready, true, false, false, false, nil); err != nil {
		return nil, nil, err
	}
	_, err = channel.QueueDeclare(waiting, true, false, false, false, amqp.Table{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": ready,
	})
	return conn, channel, err
}

func (r rabbitmq) sender() (sender, error) {
	_, channel, err := r.channel()
	if err != nil {
		return nil, err
	}
	return rabbitmqSender{channel}, channel.Confirm(false)
}

// send publishes all and waits for the confirms after that.
func (s rabbitmqSender) send(due time.Time, bodies [][]byte) error {
	confirms := make([]*amqp.DeferredConfirmation, len(bodies))
	for i, body := range bodies {
		// A message that expires in less than a millisecond would be late rather than early.
		expiration := max(1, time.Until(due).Milliseconds()+1)
		confirm, err := s.PublishWithDeferredConfirm("", waiting, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, Expiration: strconv.FormatInt(expiration, 10), Body: body,
		})
		if err != nil {
			return err
		}
		confirms[i] = confirm
	}
	for _, confirm := range confirms {
		if !confirm.Wait() {
			return amqp.ErrClosed
		}
	}
	return nil
}

func (r rabbitmq) receive(ctx context.Context, consumers int, in *inbox) error {
	return eachConnection(ctx, consumers, func(ctx context.Context) error {
		conn, channel, err := r.channel()
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := channel.Qos(prefetch, 0, false); err != nil {
			return err
		}
		deliveries, err := channel.ConsumeWithContext(ctx, ready, "", false, false, false, false, nil)
		if err != nil {
			return err
		}
		for delivery := range deliveries {
			in.got(delivery.Body)
			if err := delivery.Ack(false); err != nil {
				return err
			}
			in.ack(1)
		}
		return nil
	})
}
