#!lua flags=allow-oom
-- Claims the given messages, as far as they still wait there.
--
-- KEYS    as in prelude.lua
-- ARGV    lane, end of the leases in microseconds of the store's time, their span in microseconds, holder
--         (0 process, 1 client, 2 client that is given nothing else), instance, number of the call, the token by which this node owns the lane in this shard
--         ("" if nobody owns it), then members of `wait`
-- A client sends the same call again when its connection breaks before the answer. What it claimed the first time is its own, by the
-- token of that time, and it takes nothing more: instance and number identify the call.
--
-- result  nothing, if another node owns the lane; else the token of these claims, when the next of the lane is ready ("" if none), then per member the packed message,
--         or "" where another was faster, or "\255" where it cannot be read and is a dead letter now
local lane, lease_end, span, holder, instance, number, fence = unpack(ARGV, FIRST, FIRST + 6)
if fence ~= '' and call('HGET', owner, lane) ~= instance .. pack('>I8', fence) then return {} end
local own = tag(lane)
local members, ids, marked = {}, {}, {}
for i = FIRST + 7, #ARGV do
  local member = ARGV[i]
  local marks = member:byte(-1)
  if marks >= 32 then marks = 0 end
  members[#members + 1] = member
  ids[#members] = member:sub(#own + 8, marks > 0 and -2 or -1)
  marked[#members] = marks
end
local there = call('ZMSCORE', wait, unpack(members))
local packed = call('HMGET', msg, unpack(ids))

local first_token, again = nil, {}
local absent, absent_ids = {}, {}
for i, id in ipairs(ids) do
  if not there[i] then absent[#absent + 1], absent_ids[#absent + 1] = i, id end
end
if #absent > 0 then
  for n, held in ipairs(call('HMGET', claim, unpack(absent_ids))) do
    if held and #held >= CLAIM_LEN then
      local its_token, _, _, _, _, its_instance, _, its_number = unpacked(CLAIM, held)
      if its_instance == instance and its_number == number then
        first_token, again[absent[n]] = its_token, true
      end
    end
  end
end
if first_token then
  local first = first_of(lane)
  local answers = { string.format('%.0f', first_token), first and string.format('%.0f', first) or '' }
  for i = 1, #members do answers[i + 2] = again[i] and packed[i] or '' end
  return answers
end

-- Whether this is a message that waits in this lane and is ready then. What its tail says is read outside.
local LANE_PART, SINK_FLAG = char(#lane - 1) .. lane:sub(2), lane:sub(1, 1) == 's' and 1 or 0
local function waits_here(value, ready, is_retried)
  return value and value:sub(17, 16 + #lane) == LANE_PART and value:byte(1) % ACCEPTED == PENDING
    and floor(value:byte(2) / 32) % 2 == SINK_FLAG and (is_retried or value:sub(3, 8) == ready)
end

local token = next_token()
local answers, claimed = { string.format('%.0f', token), '' }, 0
for i, member in ipairs(members) do
  answers[i + 2] = ''
  if there[i] then
    local id, value, ready = ids[i], packed[i], member:sub(#own + 1, #own + 6)
    remove('ZREM', wait, member)
    count_pending(lane, ready, -1)
    local due = value and #value >= 8 and value:sub(3, 8) or ready
    if due ~= ready then remove('ZREM', retried, due .. id) end
    if waits_here(value, ready, marked[i] >= 2) then
      answers[i + 2] = value
      local lost = floor(value:byte(2) / 4) % 4
      add('HSET', claim, id, pack(CLAIM, token, lease_end, span, holder, lost, instance, due, number) .. lane)
      add('ZADD', lease, lease_end, id)
      claimed = claimed + 1
    else
      answers[i + 2] = '\255'
      set_aside(id, lane, ready, value or '', marked[i] % 2)
    end
  end
end

if claimed > 0 then
  increment(counts, '#in_flight', claimed)
  increment(counts, 'f' .. lane, claimed)
end
finish(0)
local first = first_of(lane)
answers[2] = first and string.format('%.0f', first) or ''
return answers
