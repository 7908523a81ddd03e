package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// How long a program waits for records, and for a response.
const (
	patience = 10 * time.Second
	sends    = 5
)

// A program that a line of standard input asks for: "KIND BOOTSTRAP TOPIC k=v ..", with Kafka's names of the properties.
type program struct {
	topic   string
	options []kgo.Opt
	pause   time.Duration
	seen    []string
}

// A word for an error: Kafka's name, if a broker's response has it.
func word(err error) string {
	var kafka *kerr.Error
	var closed net.Error
	switch {
	case errors.As(err, &kafka):
		return kafka.Message
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, kgo.ErrRecordTimeout):
		return "record-timeout"
	case errors.Is(err, kgo.ErrRecordRetries):
		return "record-retries"
	case errors.Is(err, io.EOF), errors.As(err, &closed):
		return "connection"
	}
	return strings.ReplaceAll(err.Error(), " ", "-")
}

func milliseconds(text string) time.Duration {
	number, err := strconv.Atoi(text)
	check(err)
	return time.Duration(number) * time.Millisecond
}

// A property of Java's by its name, for this client.
func option(name, value string) kgo.Opt {
	switch name {
	case "client.id":
		return kgo.ClientID(value)
	case "group.id":
		return kgo.ConsumerGroup(value)
	case "transactional.id":
		return kgo.TransactionalID(value)
	case "transaction.timeout.ms":
		return kgo.TransactionTimeout(milliseconds(value))
	case "request.timeout.ms":
		return kgo.RequestTimeoutOverhead(milliseconds(value))
	case "delivery.timeout.ms":
		return kgo.RecordDeliveryTimeout(milliseconds(value))
	case "session.timeout.ms":
		return kgo.SessionTimeout(milliseconds(value))
	case "heartbeat.interval.ms":
		return kgo.HeartbeatInterval(milliseconds(value))
	case "max.poll.interval.ms":
		return kgo.RebalanceTimeout(milliseconds(value))
	case "acks":
		return kgo.RequiredAcks(kgo.AllISRAcks())
	case "auto.offset.reset":
		return kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	case "enable.idempotence":
		if value == "false" {
			return kgo.DisableIdempotentWrite()
		}
		return kgo.WithContext(context.Background()) // it is idempotent by itself
	}
	check(fmt.Errorf("no option for %s", name))
	return nil
}

func (p *program) client(more ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(p.options, more...)...)
	check(err)
	return client
}

// Five records, one request each: the error of each.
func (p *program) sends(ctx context.Context) {
	client := p.client(kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProduceRequestTimeout(time.Second))
	defer client.Close()
	for number := 0; number < sends; number++ {
		err := client.ProduceSync(ctx, &kgo.Record{Topic: p.topic, Value: []byte(strconv.Itoa(number))}).FirstErr()
		if err == nil {
			p.seen = append(p.seen, "written")
		} else {
			p.seen = append(p.seen, word(err))
		}
	}
}

// Three transactions: the outcome of each, and of the aborts.
func (p *program) transacts(ctx context.Context) {
	client := p.client(kgo.ProducerLinger(0), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProduceRequestTimeout(time.Second))
	defer client.Close()
	for number := 0; number < 3; number++ {
		if err := client.BeginTransaction(); err != nil {
			p.seen = append(p.seen, word(err))
			return
		}
		err := client.ProduceSync(ctx, &kgo.Record{Topic: p.topic, Value: []byte(strconv.Itoa(number))}).FirstErr()
		if number == 0 {
			time.Sleep(p.pause)
		}
		if err == nil {
			err = client.EndTransaction(ctx, kgo.TryCommit)
		}
		if err == nil {
			p.seen = append(p.seen, "committed")
			continue
		}
		p.seen = append(p.seen, word(err))
		if err := client.EndTransaction(ctx, kgo.TryAbort); err != nil {
			p.seen = append(p.seen, word(err))
			return
		}
		p.seen = append(p.seen, "aborted")
	}
}

func (p *program) reader(more ...kgo.Opt) *kgo.Client {
	more = append(more, kgo.ConsumeTopics(p.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll())
	return p.client(append(more, kgo.FetchMaxWait(500*time.Millisecond))...)
}

// Five records and two commits: the values, and the outcome of each commit.
func (p *program) consumes(ctx context.Context) {
	client := p.reader()
	defer client.CloseAllowingRebalance()
	for read := 0; read < sends; {
		limited, cancel := context.WithTimeout(ctx, patience)
		fetches := client.PollFetches(limited)
		cancel()
		if limited.Err() == context.DeadlineExceeded && fetches.NumRecords() == 0 {
			p.seen = append(p.seen, "nothing", "came")
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) { p.seen = append(p.seen, word(err)) })
		fetches.EachRecord(func(record *kgo.Record) {
			read++
			p.seen = append(p.seen, string(record.Value))
			if text := string(record.Value); text == "1" || text == "4" {
				if err := client.CommitRecords(ctx, record); err != nil {
					p.seen = append(p.seen, word(err))
				} else {
					p.seen = append(p.seen, "committed")
				}
			}
		})
		client.AllowRebalance()
	}
}

// A member until a record "stop" comes: what it is assigned, and what is revoked.
func (p *program) belongs(ctx context.Context) {
	changed := func(what string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, of map[string][]int32) {
			partitions := of[p.topic]
			sort.Slice(partitions, func(i, j int) bool { return partitions[i] < partitions[j] })
			p.seen = append(p.seen, what+":"+strings.Trim(strings.ReplaceAll(fmt.Sprint(partitions), " ", ","), "[]"))
		}
	}
	events := []kgo.Opt{kgo.OnPartitionsAssigned(changed("assigned")), kgo.OnPartitionsRevoked(changed("revoked")), kgo.OnPartitionsLost(changed("lost"))}
	client := p.reader(append(events, kgo.Balancers(kgo.RangeBalancer()))...)
	defer client.CloseAllowingRebalance()
	for stopped := false; !stopped; {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) { p.seen = append(p.seen, word(err)) })
		fetches.EachRecord(func(record *kgo.Record) { stopped = stopped || string(record.Value) == "stop" })
		stopped = stopped || ctx.Err() != nil
		client.AllowRebalance()
	}
}

func run(words []string) []string {
	p := &program{topic: words[2]}
	backoff := func(int) time.Duration { return 20 * time.Millisecond }
	p.options = []kgo.Opt{kgo.SeedBrokers(strings.Split(words[1], ",")...), kgo.RetryBackoffFn(backoff), kgo.MetadataMinAge(20 * time.Millisecond)}
	p.options = append(p.options, kgo.MetadataMaxAge(time.Hour), kgo.DisableClientMetrics(), kgo.ConcurrentTransactionsBackoff(20*time.Millisecond))
	for _, given := range words[3:] {
		name, value, _ := strings.Cut(given, "=")
		if name == "pause.ms" {
			p.pause = milliseconds(value)
			continue
		}
		p.options = append(p.options, option(name, value))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	map[string]func(context.Context){"sends": p.sends, "transacts": p.transacts, "consumes": p.consumes, "belongs": p.belongs}[words[0]](ctx)
	return p.seen
}

// Runs programs, one per line of standard input, and prints a line of words for each: what the program saw, in order.
func plans() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(strings.Join(run(strings.Split(lines.Text(), " ")), " "))
	}
}
