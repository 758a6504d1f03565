// SPDX-License-Identifier: MIT
//
// What swarmbo asks of ns-3: the geometric SINR of users, and what a saturated 802.11n downlink delivers to them.
//
// Compiled on the user's machine against the headers and libraries of the ns3 wheel that the user installed, loaded by
// child.py. Everything global in ns-3 that a result could depend on is reset before each build, so that one input gives
// one output, however many were simulated before it in the same process.

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/mac48-address.h"
#include "ns3/mobility-helper.h"
#include "ns3/mobility-model.h"
#include "ns3/multi-model-spectrum-channel.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"
#include "ns3/packet.h"
#include "ns3/propagation-delay-model.h"
#include "ns3/propagation-loss-model.h"
#include "ns3/position-allocator.h"
#include "ns3/queue-size.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/spectrum-wifi-helper.h"
#include "ns3/ssid.h"
#include "ns3/sta-wifi-mac.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mac.h"
#include "ns3/wifi-net-device.h"
#include "ns3/wifi-phy.h"
#include "ns3/yans-wifi-channel.h"
#include "ns3/yans-wifi-helper.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

using namespace ns3;

extern "C"
{
    // child.py has the same fields in the same order. Matrices are row by row.
    struct Wlan
    {
        int32_t points;            // k access points
        int32_t users;             // m users, all of them there
        const double* point_xy;    // (k, 2), m
        const double* user_xy;     // (m, 2), m
        const int32_t* serving;    // (m,), from 0
        const double* power_dbm;   // (k,)
        const double* to_users_db; // (k, m), shadowing
        const double* between_db;  // (k, k), shadowing
        const double* disturbs;    // (k, k), share of the power of column j in the channel of row i, for the geometric SINR
        const double* width_mhz;   // (k,), of the channels
        const int32_t* channel;    // (k,), number of the whole channel; all 0 if there is only one channel
        const int32_t* primary;    // (k,), which 20 MHz of it are its primary channel, from 0
        double loss_at_one_metre_db;
        double loss_per_decade_db;
        double noise_dbm; // at a receiver, over bandwidth_mhz
        double bandwidth_mhz;
        double user_power_dbm;
        double warm_up_s; // simulated time before payload is counted
        double seconds;   // simulated time in which payload is counted
        uint32_t run;     // run number of ns-3's random streams
    };
}

namespace
{

constexpr uint16_t PROTOCOL = 0x88B5;       // for local experiments, IEEE 802
constexpr uint32_t FRAME_BYTES = 1500;      // payload of each frame
constexpr uint32_t WAITING = 128;           // frames kept in the queue of each user
constexpr double REFILL_S = 0.004;          // between refills: the fastest link sends less than half of the queue
constexpr double QUIET = 0.8;               // share of the warm-up without traffic, in which users associate
constexpr double BOLTZMANN_T0 = 1.3803e-23 * 290.0; // as in ns-3's InterferenceHelper

NodeContainer
Place(const double* xy, int32_t n)
{
    NodeContainer nodes;
    nodes.Create(n);
    auto places = CreateObject<ListPositionAllocator>();
    for (int32_t i = 0; i < n; ++i)
    {
        places->Add(Vector(xy[2 * i], xy[2 * i + 1], 0.0));
    }
    MobilityHelper mobility;
    mobility.SetPositionAllocator(places);
    mobility.SetMobilityModel("ns3::ConstantPositionMobilityModel");
    mobility.Install(nodes);
    return nodes;
}

Ptr<MobilityModel>
Of(const NodeContainer& nodes, int32_t i)
{
    return nodes.Get(i)->GetObject<MobilityModel>();
}

/// ns-3's log-distance law, plus the shadowing of each link.
Ptr<PropagationLossModel>
Loss(const Wlan& w, const NodeContainer& points, const NodeContainer& users)
{
    auto law = CreateObject<LogDistancePropagationLossModel>();
    law->SetPathLossExponent(w.loss_per_decade_db / 10.0);
    law->SetReference(1.0, w.loss_at_one_metre_db);
    auto shadows = CreateObject<MatrixPropagationLossModel>();
    shadows->SetDefaultLoss(0.0);
    bool any = false;
    auto add = [&](Ptr<MobilityModel> a, Ptr<MobilityModel> b, double db) {
        if (db != 0.0)
        {
            shadows->SetLoss(a, b, db);
            any = true;
        }
    };
    for (int32_t i = 0; i < w.points; ++i)
    {
        for (int32_t j = i + 1; j < w.points; ++j)
        {
            add(Of(points, i), Of(points, j), w.between_db[i * w.points + j]);
        }
        for (int32_t u = 0; u < w.users; ++u)
        {
            add(Of(points, i), Of(users, u), w.to_users_db[i * w.users + u]);
        }
    }
    if (any)
    {
        law->SetNext(shadows);
    }
    return law;
}

void
Forget(uint32_t run)
{
    Simulator::Destroy();
    Mac48Address::ResetAllocationIndex();
    RngSeedManager::SetSeed(1);
    RngSeedManager::SetRun(run);
    RngSeedManager::ResetNextStreamIndex();
}

double
Milliwatt(double dbm)
{
    return std::pow(10.0, dbm / 10.0);
}

/// Counts what arrives at one user.
struct Arrivals
{
    uint64_t bytes = 0;
    bool counts = false;

    bool Receive(Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address&)
    {
        bytes += counts ? packet->GetSize() : 0;
        return true;
    }
};

/// Keeps frames waiting for one user at its access point: a saturated downlink.
struct Source
{
    Ptr<WifiNetDevice> point;
    Mac48Address user;
    Ptr<WifiMacQueue> queue;

    void Refill()
    {
        const WifiContainerQueueId line{WIFI_QOSDATA_QUEUE, WIFI_UNICAST, user, 0};
        for (uint32_t waiting = queue->GetNPackets(line); waiting < WAITING; ++waiting)
        {
            point->Send(Create<Packet>(FRAME_BYTES), user, PROTOCOL);
        }
        Simulator::Schedule(Seconds(REFILL_S), &Source::Refill, this);
    }
};

} // namespace

extern "C"
{
    /// Ratio of signal to interference and noise at each user (m,), by the powers that ns-3 says arrive.
    void swarmbo_sinr(const Wlan* wlan, double* sinr)
    {
        const Wlan& w = *wlan;
        Forget(w.run);
        auto points = Place(w.point_xy, w.points);
        auto users = Place(w.user_xy, w.users);
        auto loss = Loss(w, points, users);
        for (int32_t u = 0; u < w.users; ++u)
        {
            const int32_t a = w.serving[u];
            double wanted = 0.0;
            double rest = Milliwatt(w.noise_dbm) * w.width_mhz[a] / w.bandwidth_mhz;
            for (int32_t j = 0; j < w.points; ++j)
            {
                const double arriving = Milliwatt(loss->CalcRxPower(w.power_dbm[j], Of(points, j), Of(users, u)));
                wanted += j == a ? arriving : 0.0;
                rest += j != a ? w.disturbs[a * w.points + j] * arriving : 0.0;
            }
            sinr[u] = wanted / rest;
        }
        Simulator::Destroy();
    }

    /// Payload that arrives at each user (m,) within the time that is counted, Mbit/s, and who is associated (m,).
    void swarmbo_throughput(const Wlan* wlan, double* mbps, int32_t* associated)
    {
        const Wlan& w = *wlan;
        Forget(w.run);
        const uint32_t room = WAITING * (w.users + 2);
        Config::SetDefault("ns3::WifiMacQueue::MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, room)));
        auto points = Place(w.point_xy, w.points);
        auto users = Place(w.user_xy, w.users);

        // on one channel, ns-3's quick model, which has no interference between channels that overlap
        const bool one = w.channel[0] == 0;
        auto delay = CreateObject<ConstantSpeedPropagationDelayModel>();
        YansWifiPhyHelper quick;
        SpectrumWifiPhyHelper exact;
        if (one)
        {
            auto air = CreateObject<YansWifiChannel>();
            air->SetPropagationDelayModel(delay);
            air->SetPropagationLossModel(Loss(w, points, users));
            quick.SetChannel(air);
        }
        else
        {
            auto air = CreateObject<MultiModelSpectrumChannel>();
            air->SetPropagationDelayModel(delay);
            air->AddPropagationLossModel(Loss(w, points, users));
            exact.SetChannel(air);
        }
        WifiPhyHelper& phy = one ? static_cast<WifiPhyHelper&>(quick) : exact;
        auto settings = [&](int32_t i) {
            if (one)
            {
                return std::string(w.bandwidth_mhz > 30.0 ? "{38, 40, BAND_5GHZ, 0}" : "{36, 20, BAND_5GHZ, 0}");
            }
            const int32_t width = static_cast<int32_t>(w.width_mhz[i]);
            return "{" + std::to_string(w.channel[i]) + ", " + std::to_string(width) +
                   (w.channel[i] < 30 ? ", BAND_2_4GHZ, " : ", BAND_5GHZ, ") + std::to_string(w.primary[i]) + "}";
        };
        const double thermal_dbm = 10.0 * std::log10(BOLTZMANN_T0 * w.bandwidth_mhz * 1e6) + 30.0;
        phy.Set("RxNoiseFigure", DoubleValue(w.noise_dbm - thermal_dbm));
        WifiHelper wifi;
        const bool wide = *std::max_element(w.width_mhz, w.width_mhz + w.points) > 50.0;
        wifi.SetStandard(wide ? WIFI_STANDARD_80211ac : WIFI_STANDARD_80211n);
        wifi.SetRemoteStationManager("ns3::IdealWifiManager");

        std::vector<Ptr<WifiNetDevice>> at_points;
        std::vector<Ptr<WifiNetDevice>> at_users;
        auto install = [&](Ptr<Node> node, const WifiMacHelper& mac, int32_t point, double dbm) {
            phy.Set("ChannelSettings", StringValue(settings(point)));
            phy.Set("TxPowerStart", DoubleValue(dbm));
            phy.Set("TxPowerEnd", DoubleValue(dbm));
            return DynamicCast<WifiNetDevice>(wifi.Install(phy, mac, NodeContainer(node)).Get(0));
        };
        auto name = [](int32_t point) { return SsidValue(Ssid("ap-" + std::to_string(point))); };
        for (int32_t i = 0; i < w.points; ++i)
        {
            WifiMacHelper mac;
            mac.SetType("ns3::ApWifiMac", "Ssid", name(i));
            at_points.push_back(install(points.Get(i), mac, i, w.power_dbm[i]));
        }
        for (int32_t u = 0; u < w.users; ++u)
        {
            WifiMacHelper mac;
            mac.SetType("ns3::StaWifiMac", "Ssid", name(w.serving[u]));
            at_users.push_back(install(users.Get(u), mac, w.serving[u], w.user_power_dbm));
        }

        std::vector<Arrivals> arrivals(w.users);
        std::vector<Source> sources(w.users);
        for (int32_t u = 0; u < w.users; ++u)
        {
            at_users[u]->SetReceiveCallback(MakeCallback(&Arrivals::Receive, &arrivals[u]));
            auto point = at_points[w.serving[u]];
            sources[u] = {point, Mac48Address::ConvertFrom(at_users[u]->GetAddress()), point->GetMac()->GetTxopQueue(AC_BE)};
            Simulator::Schedule(Seconds(QUIET * w.warm_up_s), &Source::Refill, &sources[u]);
        }
        Simulator::Schedule(Seconds(w.warm_up_s), [&arrivals] {
            for (auto& at : arrivals)
            {
                at.counts = true;
            }
        });
        Simulator::Stop(Seconds(w.warm_up_s + w.seconds));
        Simulator::Run();
        for (int32_t u = 0; u < w.users; ++u)
        {
            mbps[u] = 8e-6 * static_cast<double>(arrivals[u].bytes) / w.seconds;
            associated[u] = DynamicCast<StaWifiMac>(at_users[u]->GetMac())->IsAssociated() ? 1 : 0;
        }
        Simulator::Destroy();
    }
}
