-- Fields of Wireshark from the packet comments of rocescope.
--
-- A comment such as "late by 3, extent 5 [rocescope verdict=reordered late_by=3 extent=5]" gives
-- rocescope.verdict, rocescope.late_by and so on, for display filters, columns and coloring rules.
-- Installed by `rocescope extcap --install`; or: tshark -X lua_script:rocescope.lua

local rocescope = Proto("rocescope", "rocescope verdicts")

local numbers = {
    late_by = "PSNs behind the expected one",
    extent = "Reordering extent (RFC 4737), packets",
    gap = "Missing PSNs before this frame",
    gap_from = "First missing PSN",
    lost_before = "Packets lost before this frame",
    nak_psn = "PSN of the NAK",
    hop = "Number of taps that have seen the packet",
    src_rank = "Rank that sends",
    dst_rank = "Rank that receives",
    grant_rank = "NCCL's grant: rank that shall send",
    grant_number = "NCCL's grant: number of the message",
    grant_slot_bytes = "NCCL's grant: size of the buffer",
    grant_entries = "NCCL's grant: buffers of a grouped receive",
}
local frames = {
    overtaken_by = "Overtaken by frame",
    gap_at = "The gap opened at frame",
    retransmission_of = "Retransmission of frame",
    duplicate_of = "Duplicate of frame",
    copy_of = "Seen at the tap before in frame",
}
local times = { late_ns = "late_time", hop_ns = "hop_time" }
local texts = {
    verdict = "Verdict",
    nak = "Code of the NAK",
    never_seen_at = "Never seen at tap",
    comm = "Communicator",
}
local retransmitted = { recovered = true, retransmitted = true }

local fields = {
    retransmission = ProtoField.bool("rocescope.retransmission", "Retransmission"),
    lost_after = ProtoField.bool("rocescope.lost_after", "Lost after this tap"),
    rank = ProtoField.uint32("rocescope.rank", "Rank"),
    late_time = ProtoField.relative_time("rocescope.late_time", "Late by"),
    hop_time = ProtoField.relative_time("rocescope.hop_time", "Time since the tap before"),
}
for name, label in pairs(numbers) do
    fields[name] = ProtoField.uint32("rocescope." .. name, label)
end
for name, label in pairs(frames) do
    fields[name] = ProtoField.framenum("rocescope." .. name, label, base.NONE)
end
for name, label in pairs(texts) do
    fields[name] = ProtoField.string("rocescope." .. name, label)
end
rocescope.fields = fields

local comment_of = Field.new("frame.comment")

local function small(value)
    local number = tonumber(value)
    if number and number >= 0 and number < 4294967296 and number == math.floor(number) then
        return number
    end
end

local function span(value)
    local number = tonumber(value)
    if number and math.abs(number) < 9e18 then
        local seconds = math.modf(number / 1e9)
        if math.abs(seconds) < 2147483648 then
            return NSTime.new(seconds, number - seconds * 1e9)
        end
    end
end

local function add(tree, name, value)
    if numbers[name] then
        value = small(value)
        if value then
            tree:add(fields[name], value)
            if name == "src_rank" or name == "dst_rank" then
                tree:add(fields.rank, value):set_generated()
            end
        end
    elseif frames[name] then
        value = small(value)
        if value then
            tree:add(fields[name], value)
        end
    elseif times[name] then
        value = span(value)
        if value then
            tree:add(fields[times[name]], value)
        end
    elseif texts[name] then
        tree:add(fields[name], value)
        if name == "verdict" and retransmitted[value] then
            tree:add(fields.retransmission, true):set_generated()
        end
    elseif name == "lost_after" then
        tree:add(fields.lost_after, true)
    end
end

function rocescope.dissector(buffer, pinfo, root)
    local tree
    for _, comment in ipairs({ comment_of() }) do
        local text = tostring(comment.value)
        local note, values = text:match("^(.-)%s*%[rocescope ([^%]]*)%]$")
        if values then
            tree = tree or root:add(rocescope)
            tree:append_text(": " .. note)
            for name, value in values:gmatch("([%w_]+)=(%S+)") do
                add(tree, name, value)
            end
        end
    end
end

register_postdissector(rocescope)
