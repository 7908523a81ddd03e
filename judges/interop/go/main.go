// Reads and writes a cluster with franz-go or sarama: go run . CLIENT BOOTSTRAP. Prints what it saw as JSON. go run . plans: see plans.go.
// go run . order BOOTSTRAP TOPIC RECORDS: reads a topic with franz-go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 300

// What a client saw: partition and offset of each record that it wrote, and the values that it read, by partition.
type seen struct {
	Reports [][2]int64         `json:"reports"`
	Read    map[int32][]string `json:"read"`
	// The values of a transaction that was committed, beside one that was aborted.
	Committed []string `json:"committed"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func franz(bootstrap string) seen {
	saw := seen{Read: map[int32][]string{}}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic("orders"))
	check(err)
	for i := 0; i < records; i++ {
		key := []byte(fmt.Sprint(i))
		result := producer.ProduceSync(ctx, &kgo.Record{Key: key, Value: key})
		record, err := result.First()
		check(err)
		saw.Reports = append(saw.Reports, [2]int64{int64(record.Partition), record.Offset})
	}
	producer.Close()
	saw.Read = franzGroup(ctx, bootstrap, "orders", records)
	writer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic("paid"), kgo.TransactionalID("franz"))
	check(err)
	for _, end := range []kgo.TransactionEndTry{kgo.TryAbort, kgo.TryCommit} {
		check(writer.BeginTransaction())
		check(writer.ProduceSync(ctx, kgo.StringRecord(fmt.Sprint(end == kgo.TryCommit))).FirstErr())
		check(writer.EndTransaction(ctx, end))
	}
	writer.Close()
	for _, values := range franzGroup(ctx, bootstrap, "paid", 1) {
		saw.Committed = append(saw.Committed, values...)
	}
	return saw
}

// Partition and offset of each record of a topic, in the order in which a program sees them.
func franzOrder(bootstrap, topic string, count int) [][2]int64 {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ClientID("reader"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}
	reader, err := kgo.NewClient(append(options, kgo.FetchMaxPartitionBytes(600), kgo.FetchMaxWait(50*time.Millisecond))...)
	check(err)
	defer reader.Close()
	order := [][2]int64{}
	for len(order) < count {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { order = append(order, [2]int64{int64(r.Partition), r.Offset}) })
	}
	return order
}

func franzGroup(ctx context.Context, bootstrap, topic string, count int) map[int32][]string {
	options := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup("franz-" + topic)}
	options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	reader, err := kgo.NewClient(options...)
	check(err)
	read := map[int32][]string{}
	for n := 0; n < count; {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			read[r.Partition] = append(read[r.Partition], string(r.Value))
			n++
		})
	}
	check(reader.CommitUncommittedOffsets(ctx))
	reader.Close()
	return read
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Return.Successes = true
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	return config
}

type handler struct {
	read  map[int32][]string
	lines chan *sarama.ConsumerMessage
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			session.MarkMessage(message, "")
			h.lines <- message
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaGroup(bootstrap, topic string, count int) map[int32][]string {
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, "sarama-"+topic, saramaConfig())
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	h := handler{read: map[int32][]string{}, lines: make(chan *sarama.ConsumerMessage)}
	ended := make(chan error)
	go func() { ended <- group.Consume(ctx, []string{topic}, h) }()
	for n := 0; n < count; n++ {
		select {
		case message := <-h.lines:
			h.read[message.Partition] = append(h.read[message.Partition], string(message.Value))
		case err := <-ended:
			check(fmt.Errorf("the group ended after %d records: %w", n, err))
		}
	}
	cancel()
	<-ended
	check(group.Close())
	return h.read
}

func withSarama(bootstrap string) seen {
	saw := seen{}
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, saramaConfig())
	check(err)
	for i := 0; i < records; i++ {
		text := sarama.StringEncoder(fmt.Sprint(i))
		partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Key: text, Value: text})
		check(err)
		saw.Reports = append(saw.Reports, [2]int64{int64(partition), offset})
	}
	check(producer.Close())
	saw.Read = saramaGroup(bootstrap, "orders", records)
	config := saramaConfig()
	config.Producer.Transaction.ID = "sarama"
	writer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	check(err)
	for _, commit := range []bool{false, true} {
		check(writer.BeginTxn())
		_, _, err := writer.SendMessage(&sarama.ProducerMessage{Topic: "paid", Value: sarama.StringEncoder(fmt.Sprint(commit))})
		check(err)
		if commit {
			check(writer.CommitTxn())
		} else {
			check(writer.AbortTxn())
		}
	}
	check(writer.Close())
	for _, values := range saramaGroup(bootstrap, "paid", 1) {
		saw.Committed = append(saw.Committed, values...)
	}
	return saw
}

func main() {
	if os.Args[1] == "plans" {
		plans()
		return
	}
	if os.Args[1] == "order" {
		count, err := strconv.Atoi(os.Args[4])
		check(err)
		check(json.NewEncoder(os.Stdout).Encode(franzOrder(os.Args[2], os.Args[3], count)))
		return
	}
	clients := map[string]func(string) seen{"franz-go": franz, "sarama": withSarama}
	saw := clients[os.Args[1]](os.Args[2])
	sort.Strings(saw.Committed)
	check(json.NewEncoder(os.Stdout).Encode(saw))
}
