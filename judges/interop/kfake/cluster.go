// Package kfake has the names of franz-go's kfake that its tests of moved leaders use, before `fletchlog serve --control`. Nodes of kfake count from 0, those
// of fletchlog from 1: a test sees the numbers of kfake here, and those of fletchlog in responses.
package kfake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const timeout = 20 * time.Second

const shortestLock = "1000"

type config struct {
	nodes   int
	topics  map[string]int32
	brokers map[string]string
}

// Opt is an option of NewCluster.
type Opt func(*config)

// NumBrokers is the number of nodes.
func NumBrokers(n int) Opt { return func(c *config) { c.nodes = n } }

// SeedTopics creates topics.
func SeedTopics(partitions int32, topics ...string) Opt {
	return func(c *config) {
		for _, topic := range topics {
			c.topics[topic] = partitions
		}
	}
}

// BrokerConfigs are properties of the broker.
func BrokerConfigs(properties map[string]string) Opt {
	return func(c *config) {
		for name, value := range properties {
			c.brokers[name] = value
		}
	}
}

// Cluster is a process of fletchlog.
type Cluster struct {
	Bootstrap string `json:"bootstrap"`
	Control   string `json:"control"`
	process   *exec.Cmd
	stdin     io.Closer
	client    *kgo.Client
	admin     *kadm.Client
	mu        sync.Mutex
	groups    map[string]bool
}

// NewCluster starts one; `fletchlog` is on PATH.
func NewCluster(options ...Opt) (*Cluster, error) {
	given := &config{nodes: 3, topics: map[string]int32{}, brokers: map[string]string{
		"group.consumer.min.heartbeat.interval.ms": "100",
		"group.share.min.heartbeat.interval.ms":    "50",
		"group.share.heartbeat.interval.ms":        "100",
		"group.share.min.session.timeout.ms":       "100",
		"group.share.min.record.lock.duration.ms":  shortestLock,
		"group.share.assignment.interval.ms":       "0",
	}}
	for _, option := range options {
		option(given)
	}
	arguments := []string{"serve", "--memory", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--print-address", "--with-parent"}
	arguments = append(arguments, "--nodes", fmt.Sprint(given.nodes))
	given.brokers["default.replication.factor"] = fmt.Sprint(min(3, given.nodes))
	// kfake has shorter locks than Kafka takes
	if lock := "group.share.record.lock.duration.ms"; len(given.brokers[lock]) == 3 {
		given.brokers[lock] = shortestLock
	}
	delete(given.brokers, "share.record.lock.sweep.interval.ms") // kfake's
	for name, value := range given.brokers {
		arguments = append(arguments, "-c", name+"="+value)
	}
	c := &Cluster{process: exec.Command("fletchlog", arguments...), groups: map[string]bool{}}
	c.process.Stderr = os.Stderr
	printed, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(printed).ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, c); err != nil {
		return nil, err
	}
	if c.client, err = kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.MetadataMinAge(10*time.Millisecond), kgo.ClientID("kfake")); err != nil {
		return nil, err
	}
	c.admin = kadm.NewClient(c.client)
	for topic, partitions := range given.topics {
		if err := c.create(topic, partitions); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) create(topic string, partitions int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := c.admin.CreateTopic(ctx, partitions, -1, nil, topic)
	return err
}

// Close ends the process.
func (c *Cluster) Close() {
	c.admin.Close()
	c.stdin.Close()
	c.process.Wait()
}

// ListenAddrs are the addresses of the nodes.
func (c *Cluster) ListenAddrs() []string { return strings.Split(c.Bootstrap, ",") }

// Asks the control interface; an error is its message.
func (c *Cluster) ask(method, path string, body, into any) error {
	text := []byte{}
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, c.Control+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// MoveTopicPartition makes a node the leader.
func (c *Cluster) MoveTopicPartition(topic string, partition, node int32) error {
	return c.ask("POST", "/v1/leaders/move", map[string]any{"topic": topic, "partition": partition, "to": node + 1}, nil)
}

// PartitionInfo is what the metadata says, and the log.
type PartitionInfo struct {
	Leader        int32
	Epoch         int32
	HighWatermark int64
}

// PartitionInfo of a partition; nil: there is none.
func (c *Cluster) PartitionInfo(topic string, partition int32) *PartitionInfo {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	info := c.led(ctx, topic, partition)
	if info == nil {
		return nil
	}
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		panic(err)
	}
	if end, exists := ends.Lookup(topic, partition); exists {
		info.HighWatermark = end.Offset
	}
	return info
}

// What a node says of a partition now; the client's own metadata may be some ms old.
func (c *Cluster) led(ctx context.Context, topic string, partition int32) *PartitionInfo {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	response, err := c.client.Broker(1).Request(ctx, request)
	if err != nil {
		panic(err)
	}
	for _, of := range response.(*kmsg.MetadataResponse).Topics[0].Partitions {
		if of.Partition == partition {
			return &PartitionInfo{Leader: of.Leader - 1, Epoch: of.LeaderEpoch}
		}
	}
	return nil
}

// LeaderFor is the leader of a partition; -1: there is none.
func (c *Cluster) LeaderFor(topic string, partition int32) int32 {
	info := c.PartitionInfo(topic, partition)
	if info == nil {
		return -1
	}
	return info.Leader
}

// ShufflePartitionLeaders moves every leader to a random node.
func (c *Cluster) ShufflePartitionLeaders() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	metadata, err := c.admin.Metadata(ctx)
	if err != nil {
		panic(err)
	}
	for _, topic := range metadata.Topics {
		for partition := range topic.Partitions {
			if err := c.MoveTopicPartition(topic.Topic, partition, rand.Int31n(int32(len(c.ListenAddrs())))); err != nil {
				panic(err)
			}
		}
	}
}

// CoordinatorFor is the node that coordinates a group.
func (c *Cluster) CoordinatorFor(group string) int32 {
	c.mu.Lock()
	c.groups[group] = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	found := c.admin.FindGroupCoordinators(ctx, group)
	if err := found.Error(); err != nil {
		panic(err)
	}
	return found[group].NodeID - 1
}

// RehashCoordinators moves every group that was asked for.
func (c *Cluster) RehashCoordinators() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for group := range c.groups {
		to := 1 + rand.Int31n(int32(len(c.ListenAddrs())))
		if err := c.ask("POST", "/v1/coordinators/move", map[string]any{"group_id": group, "to": to}, nil); err != nil {
			panic(err)
		}
	}
}

// TopicInfo is what the metadata says of a topic.
type TopicInfo struct{ TopicID [16]byte }

// TopicInfo of a topic.
func (c *Cluster) TopicInfo(topic string) *TopicInfo {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	topics, err := c.admin.ListTopics(ctx, topic)
	if err != nil {
		panic(err)
	}
	return &TopicInfo{TopicID: topics[topic].ID}
}

// SetGroupConfigs sets properties of a group.
func (c *Cluster) SetGroupConfigs(group string, properties map[string]string) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range properties {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, kmsg.StringPtr(value)
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(response.Resources[0].ErrorCode)
	}
	if err != nil {
		panic(err)
	}
}

// GroupMember is a member of a share group.
type GroupMember struct {
	MemberID         string
	SubscribedTopics []string
}

// GroupInfo is what ShareGroupDescribe says.
type GroupInfo struct {
	State   string
	Epoch   int32
	Members []GroupMember
}

// GroupInfo of a share group; nil: there is none.
func (c *Cluster) GroupInfo(group string) *GroupInfo {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request := kmsg.NewPtrShareGroupDescribeRequest()
	request.GroupIDs = []string{group}
	response, err := request.RequestWith(ctx, c.client)
	if err != nil {
		panic(err)
	}
	of := response.Groups[0]
	if of.ErrorCode != 0 {
		return nil
	}
	info := &GroupInfo{State: of.GroupState, Epoch: of.GroupEpoch}
	for _, member := range of.Members {
		info.Members = append(info.Members, GroupMember{MemberID: member.MemberID, SubscribedTopics: member.SubscribedTopicNames})
	}
	return info
}

// WaitGroupInfo asks until it is so.
func (c *Cluster) WaitGroupInfo(ctx context.Context, group string, is func(*GroupInfo) bool) (*GroupInfo, error) {
	for {
		info := c.GroupInfo(group)
		if is(info) {
			return info, nil
		}
		select {
		case <-ctx.Done():
			return info, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Fault is an error of requests, or counts them.
type Fault struct {
	Keys       []kmsg.Key
	Nodes      []int32
	Topic      string
	TopicID    [16]byte
	Partitions []int32
	Group      string
	TxnID      string
	Err        *kerr.Error
	Count      int
	Observe    bool
	TopLevel   bool
}

// FaultHandle is a fault that was added.
type FaultHandle struct {
	cluster  *Cluster
	rules    []int
	observed []string
	began    map[string]int
}

// Fault adds them.
func (c *Cluster) Fault(faults ...Fault) *FaultHandle {
	handle := &FaultHandle{cluster: c, began: map[string]int{}}
	for _, fault := range faults {
		if fault.Observe {
			for _, key := range fault.Keys {
				handle.observed = append(handle.observed, key.Name())
				handle.began[key.Name()] = handle.requests(key.Name())
			}
			continue
		}
		handle.rules = append(handle.rules, c.rules(fault)...)
	}
	return handle
}

// Adds the rules of a fault: one for each node and partition that it names.
func (c *Cluster) rules(fault Fault) []int {
	rule := map[string]any{"error": strings.Replace(fault.Err.Message, "LEADER_FOR_PARTITION", "LEADER_OR_FOLLOWER", 1), "optional": true}
	if fault.Count >= 0 {
		rule["times"] = max(1, fault.Count)
	}
	if fault.TopicID != [16]byte{} {
		fault.Topic = c.nameOf(fault.TopicID)
	}
	names := []string{}
	for _, key := range fault.Keys {
		names = append(names, key.Name())
	}
	texts := map[string]any{"api": names, "topic": fault.Topic, "group": fault.Group, "transactional_id": fault.TxnID}
	for name, value := range texts {
		if text, is := value.(string); !is || text != "" {
			rule[name] = value
		}
	}
	if len(names) == 0 {
		delete(rule, "api")
	}
	rules := []map[string]any{rule}
	split := func(name string, values []int32, from int32) {
		if len(values) == 0 {
			return
		}
		var all []map[string]any
		for _, value := range values {
			for _, of := range rules {
				one := map[string]any{name: value + from}
				for key, text := range of {
					one[key] = text
				}
				all = append(all, one)
			}
		}
		rules = all
	}
	split("node", fault.Nodes, 1)
	split("partition", fault.Partitions, 0)
	var added struct{ Rules []int }
	if err := c.ask("POST", "/v1/faults", map[string]any{"rules": rules}, &added); err != nil {
		panic(err)
	}
	return added.Rules
}

func (c *Cluster) nameOf(id [16]byte) string {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	topics, err := c.admin.ListTopics(ctx)
	if err != nil {
		panic(err)
	}
	for name, topic := range topics {
		if topic.ID == id {
			return name
		}
	}
	panic(fmt.Sprintf("no topic has the id %x", id))
}

func (h *FaultHandle) requests(api string) int {
	var found struct{ Requests []json.RawMessage }
	if err := h.cluster.ask("GET", "/v1/requests?api="+api, nil, &found); err != nil {
		panic(err)
	}
	return len(found.Requests)
}

// Hits is the number of requests that were faulted or observed.
func (h *FaultHandle) Hits() int {
	var found struct {
		Rules []struct{ Number, Applied int }
	}
	if err := h.cluster.ask("GET", "/v1/faults", nil, &found); err != nil {
		panic(err)
	}
	hits := 0
	for _, rule := range found.Rules {
		for _, number := range h.rules {
			if rule.Number == number {
				hits += rule.Applied
			}
		}
	}
	for _, api := range h.observed {
		hits += h.requests(api) - h.began[api]
	}
	return hits
}

// Wait until there are that many.
func (h *FaultHandle) Wait(ctx context.Context, hits int) error {
	for h.Hits() < hits {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Remove ends it.
func (h *FaultHandle) Remove() {
	for _, number := range h.rules {
		if err := h.cluster.ask("DELETE", fmt.Sprint("/v1/faults/", number), nil, nil); err != nil {
			panic(err)
		}
	}
}

// A node as kfake numbers it.
func broker(client *kgo.Client, node int) *kgo.Broker { return client.Broker(node + 1) }
