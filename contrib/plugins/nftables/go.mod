module github.com/fairlead/fairlead/contrib/plugins/nftables

go 1.26.0

replace github.com/fairlead/fairlead => ../../..

require (
	github.com/fairlead/fairlead v0.0.0-00010101000000-000000000000
	github.com/google/nftables v0.3.0
	github.com/mdlayher/netlink v1.11.2
	github.com/vishvananda/netlink v1.3.1
	golang.org/x/sys v0.50.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/mdlayher/socket v0.6.0 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)
