-- The beginning of every script: what a message looks like, and how its indexes follow it.
--
-- KEYS    the keys of one shard, all in one slot, in this order:
--         meta     hash    generation, token: the last fencing token given
--         msg      hash    id -> packed message
--         wait     zset    what waits, all scores 0: tag of the lane, ready, rank, id, marks
--         soonest  zset    lane -> ready time of its first message
--         claim    hash    id -> packed claim
--         lease    zset    id -> end of its lease, in microseconds of the store's time
--         ended    zset    state, due, id -> when it was delivered or cancelled; or, of what was moved together: 16 + state,
--                          length of the lane's tag, how many, and of each as move.lua returns it
--         dead     zset    due, id; all scores 0
--         retried  zset    due, id of what waits for another time than its due time; all scores 0
--         count    hash    the totals (#...), and per lane what is pending (p...), in flight (f...), dead (d...)
--         minute   hash    minute -> how many become ready in it
--         hour     hash    the same by the hour
--         owner    hash    lane to a sink -> the node that delivers it from this shard: instance 8, fencing token 8
-- ARGV    1 generation, 2 wall time in ms, 3 the store's time in microseconds, 4 ended before this ms is forgotten,
--         5 how many ended ones are kept, 6 the channel for hints, 7 the ms up to which a ready time is worth one,
--         8 the sender of hints: instance 8, shard 2; the script's own arguments follow from FIRST
--
-- Scripts read and check, then queue what they write; finish() writes it, removals first. Strings are never compared
-- by < here: Lua would go by the server's locale.
local meta, msg, wait, soonest, claim, lease, ended, dead, retried, count, minute, hour, owner = unpack(KEYS)
local FIRST = 9
local PENDING, DELIVERED, DEAD, CANCELLED = 0, 2, 3, 4
local call, floor, char = redis.call, math.floor, string.char
local pack, unpacked = struct.pack, struct.unpack
local now, tick = tonumber(ARGV[2]), tonumber(ARGV[3])

if call('HGET', meta, 'generation') ~= ARGV[1] then
  return redis.error_reply('DULYGONE the data of this store was removed from Redis')
end

local function time(six) return (unpacked('>I6', six)) end
local function six(ms) return pack('>I6', ms) end

-- The lane's part of a member of `wait`. No tag begins another.
local tags = {}
local function tag(lane)
  local known = tags[lane]
  if not known then
    if #lane <= 14 then
      known = lane .. '\0'
    else
      local hex = redis.sha1hex(lane):sub(1, 28)
      known = '\1' .. hex:gsub('..', function(two) return char(tonumber(two, 16)) end)
    end
    tags[lane] = known
  end
  return known
end

-- What is queued to be written: arguments by key, for each command.
local removals = { ZREM = {}, HDEL = {} }
local additions = { ZADD = {}, HSET = {} }
local counts, minutes, hours, touched, soon = {}, {}, {}, {}, {}

local function queue(commands, command, key, ...)
  local list = commands[command][key]
  if not list then
    list = {}
    commands[command][key] = list
  end
  for i = 1, select('#', ...) do list[#list + 1] = (select(i, ...)) end
end
local function remove(command, key, ...) queue(removals, command, key, ...) end
local function add(command, key, ...) queue(additions, command, key, ...) end
local function increment(counters, field, by) counters[field] = (counters[field] or 0) + by end

local function perform(commands)
  for command, keys in pairs(commands) do
    for key, list in pairs(keys) do
      for from = 1, #list, 1000 do call(command, key, unpack(list, from, math.min(from + 999, #list))) end
    end
  end
end

local function perform_counts(key, counters)
  for field, by in pairs(counters) do
    if by ~= 0 and call('HINCRBY', key, field, by) == 0 then call('HDEL', key, field) end
  end
end

-- A fencing token that was never given. It is the time of the server, so that one given and then lost by Redis is not
-- given again.
local function next_token()
  local at = call('TIME')
  local token = math.max(tonumber(call('HGET', meta, 'token') or 0) + 1, at[1] * 1000000 + at[2])
  add('HSET', meta, 'token', string.format('%.0f', token))
  return token
end

-- The ready time of the first of a lane, or nil. A member that is too short, which something else wrote, counts as ready: a claim
-- removes it.
local function first_of(lane)
  local own = tag(lane)
  local first = call('ZRANGEBYLEX', wait, '[' .. own, '(' .. own .. '\255', 'LIMIT', 0, 1)[1]
  if not first then return nil end
  return #first < #own + 6 and 0 or time(first:sub(#own + 1, #own + 6))
end

-- Forgets what is past retention, the oldest first: about `old_max` of them. What was moved together goes together, and so
-- of what is too many a few may stay.
local BATCH = 16
local function forget(old_max)
  local held = call('HMGET', count, '#pending', '#in_flight', '#dead')
  local over = call('HLEN', msg) - (held[1] or 0) - (held[2] or 0) - (held[3] or 0) - ARGV[5]
  local before, from, step, found, ids = tonumber(ARGV[4]), 0, 1, 0, {}
  repeat
    -- One member may stand for many: the first step reads one.
    local oldest = call('ZRANGE', ended, from, from + step - 1, 'WITHSCORES')
    local is_old = #oldest > 0
    for i = 1, #oldest, 2 do
      local member, alone = oldest[i], oldest[i]:byte(1) < BATCH
      local after = found + (alone and 1 or member:byte(3))
      is_old = found < old_max and (after <= over or tonumber(oldest[i + 1]) <= before)
      if not is_old then break end
      from = from + 1
      if alone then
        found = found + 1
        ids[found] = member:sub(8)
      else
        local at, before_id, position = 4, member:byte(2) + 8, nil
        while at <= #member do
          position, at = unpacked('Bc0', member, at + 1)
          found = found + 1
          ids[found] = position:sub(before_id)
        end
      end
    end
    step = step * 2
  until not is_old
  if found == 0 then return end
  call('ZREMRANGEBYRANK', ended, 0, from - 1)
  for i = 1, found, 1000 do call('HDEL', msg, unpack(ids, i, math.min(i + 999, found))) end
end

-- Writes everything, and forgets up to `old_max` of those past retention.
local function finish(old_max)
  perform(removals)
  perform(additions)
  perform_counts(count, counts)
  perform_counts(minute, minutes)
  perform_counts(hour, hours)
  for lane in pairs(touched) do
    local first = first_of(lane)
    if first then call('ZADD', soonest, first, lane) else call('ZREM', soonest, lane) end
  end
  for lane, at in pairs(soon) do call('PUBLISH', ARGV[6], ARGV[8] .. six(at) .. lane) end
  if old_max == 0 then return end
  forget(old_max)
end

-- Packed message: state + 8 if it says when it was accepted + 16 * rank, flags, due 6, content hash 8, lane 1 + n, [accepted 6],
-- [life 4 + n], [head 4 + n], body.
-- flags: kind of body 1-2, lost 4-8, maybe delivered 16, the lane is a sink 32, has life 64, has head 128.
local ACCEPTED = 8
local NO_LIFE = { attempts = 0, ended = 0, reason = 255, receipt = '', tries = 0, history = '' }

-- Whether so many tries fill the history. Of each: at 6, outcome 1, detail 2 + n.
local function is_history(history, tries)
  local at = 1
  for _ = 1, tries do at = at + 9 + unpacked('>I2', history, at + 7) end
  return at == #history + 1
end

-- Fails, or gives nothing, if these bytes are no message.
local function parse(id, packed)
  local first, flags, lane_len = packed:byte(1), packed:byte(2), packed:byte(17)
  local m = {
    id = id, state = first % ACCEPTED, rank = floor(first / 16), kind = flags % 4, lost = floor(flags / 4) % 4,
    maybe = floor(flags / 16) % 2, sink = floor(flags / 32) % 2, due = packed:sub(3, 8), hash = packed:sub(9, 16),
    lane_text = packed:sub(18, 17 + lane_len),
  }
  m.lane = (m.sink == 1 and 's' or 'q') .. m.lane_text
  local at, len = 18 + lane_len, nil
  m.accepted = ''
  if first % 16 >= ACCEPTED then
    m.accepted = packed:sub(at, at + 5)
    at = at + 6
  end
  m.ready = m.due
  for field, value in pairs(NO_LIFE) do m[field] = value end
  if floor(flags / 64) % 2 == 1 then
    -- life: ready 6, attempts 4, ended 6, reason 1, receipt 4 + n (the first byte says whether there is one), tries 1, history
    len = unpacked('>I4', packed, at)
    local life = packed:sub(at + 4, at + 3 + len)
    local receipt_len
    m.ready = life:sub(1, 6)
    m.attempts, m.ended, m.reason, receipt_len = unpacked('>I4I6BI4', life, 7)
    m.receipt = life:sub(22, 21 + receipt_len)
    m.tries, m.history = life:byte(22 + receipt_len), life:sub(23 + receipt_len)
    if not is_history(m.history, m.tries) then return nil end
    at = at + 4 + len
  end
  m.head = ''
  if flags >= 128 then
    len = unpacked('>I4', packed, at)
    m.head = packed:sub(at, at + 3 + len)
    at = at + 4 + len
  end
  -- A part that was cut off ends behind the last byte.
  if at > #packed + 1 or m.state > CANCELLED or m.rank > 9 then return nil end
  m.body = packed:sub(at)
  return m
end

-- The message that is packed; nothing if it cannot be read, because something else wrote it. No script may fail over that: it
-- would fail at every call, and end no lease of its shard.
local function open(id, packed)
  local is_parsed, m = pcall(parse, id, packed)
  return is_parsed and m or nil
end

local function close(m)
  local life = ''
  if m.ready ~= m.due or m.attempts > 0 or m.ended > 0 or m.tries > 0 or m.receipt ~= '' or m.reason ~= 255 then
    life = m.ready .. pack('>I4I6BI4', m.attempts, m.ended, m.reason, #m.receipt)
      .. m.receipt .. char(m.tries) .. m.history
  end
  local flags = m.kind + 4 * m.lost + 16 * m.maybe + 32 * m.sink
  if life ~= '' then
    flags = flags + 64
    life = pack('>I4', #life) .. life
  end
  if m.head ~= '' then flags = flags + 128 end
  local dated = m.accepted ~= '' and ACCEPTED or 0
  return char(m.state + dated + 16 * m.rank, flags) .. m.due .. m.hash .. char(#m.lane_text) .. m.lane_text .. m.accepted
    .. life .. m.head .. m.body
end

local KEPT_MAX = 16
local DEFERRED = 'not sent, '
local UNCOUNTED = { [1] = true, [2] = true, [5] = true }

-- Whether the try at `at` says that nothing was sent. Beside it, where the next try begins.
local function is_deferral(history, at)
  local len = unpacked('>I2', history, at + 7)
  local is = len >= #DEFERRED and UNCOUNTED[history:byte(at + 6)] and history:sub(at + 9, at + 8 + #DEFERRED) == DEFERRED
  return is, at + 9 + len
end

-- Where the try begins and ends that makes room for `entry`, the history being full: for a deferral the latest one before it, else
-- the oldest try.
local function leaving(history, entry)
  local _, first_end = is_deferral(history, 1)
  local from, to, at = 1, first_end, 1
  if not is_deferral(entry, 1) then return from, to end
  while at <= #history do
    local is, after = is_deferral(history, at)
    if is then from, to = at, after end
    at = after
  end
  return from, to
end

-- Writes an attempt into the message's life. entry: at 6, outcome 1, detail 2 + n. The latest 16 are kept; a deferral replaces
-- the one before, as `Attempt::remember` says.
local function record_attempt(m, entry, counting, maybe)
  m.attempts = math.min(m.attempts + counting, 4294967295)
  if maybe == 1 then m.maybe = 1 end
  if entry == '' then return end
  while m.tries >= KEPT_MAX do
    local from, to = leaving(m.history, entry)
    m.history, m.tries = m.history:sub(1, from - 1) .. m.history:sub(to), m.tries - 1
  end
  m.history, m.tries = m.history .. entry, m.tries + 1
end

-- The member of `wait`. Marks behind the id: 1 it was lost, 2 ready at another time than its due time.
local function wait_member(m)
  local marks = (m.lost > 0 and 1 or 0) + (m.ready ~= m.due and 2 or 0)
  return tag(m.lane) .. m.ready .. char(m.rank) .. m.id .. (marks > 0 and char(marks) or '')
end

local horizon = tonumber(ARGV[7])
local function count_pending(lane, ready, by)
  touched[lane] = true
  increment(counts, '#pending', by)
  increment(counts, 'p' .. lane, by)
  local at = time(ready)
  -- A message that becomes ready soon is worth a hint to the other nodes.
  if by > 0 and at <= horizon and at < (soon[lane] or math.huge) then soon[lane] = at end
  increment(minutes, string.format('%.0f', floor(at / 60000)), by)
  increment(hours, string.format('%.0f', floor(at / 3600000)), by)
end

-- Takes a pending message out of the indexes.
local function take(m)
  remove('ZREM', wait, wait_member(m))
  if m.ready ~= m.due then remove('ZREM', retried, m.due .. m.id) end
  count_pending(m.lane, m.ready, -1)
end

-- Puts a message where what is pending waits.
local function put(m)
  m.state = PENDING
  add('ZADD', wait, 0, wait_member(m))
  if m.ready ~= m.due then add('ZADD', retried, 0, m.due .. m.id) end
  count_pending(m.lane, m.ready, 1)
  add('HSET', msg, m.id, close(m))
end

-- Puts a delivered or cancelled message where it waits to be forgotten, without its body.
local function finished(m, state)
  m.state, m.ended, m.body = state, now, ''
  add('ZADD', ended, now, char(state) .. m.due .. m.id)
  add('HSET', msg, m.id, close(m))
end

-- Packed claim: token 8, end 8, span 8, holder 1 (0: a process, 1: a client, 2: a client that was given nothing else), lost 1, instance 8, due 6, number of the call 8,
-- then the lane, which is counted there also if the message itself cannot be read. Claims of older versions do not have it.
local CLAIM, CLAIM_LEN = '>I8I8I8BBc8c6c8', 48

local function open_claim(held)
  if held and #held >= CLAIM_LEN then return unpacked(CLAIM, held) end
end

-- The lane that these bytes name, if something of it is in flight: whatever else stands there, something else wrote.
local LANE_MAX = 256
local function counted_lane(text)
  local kind = text:sub(1, 1)
  if #text < 2 or #text > LANE_MAX or (kind ~= 's' and kind ~= 'q') then return nil end
  local field = 'f' .. text
  local in_flight = (tonumber(call('HGET', count, field) or 0) or 0) + (counts[field] or 0)
  return in_flight > 0 and text or nil
end

local function lane_of_claim(held)
  if held and #held > CLAIM_LEN then return counted_lane(held:sub(CLAIM_LEN + 1)) end
end

-- The same as open() for a message that is claimed: it is of the lane in which it was.
local function open_claimed(id, packed, held)
  local m = packed and open(id, packed)
  if not m or not held or #held <= CLAIM_LEN or held:sub(CLAIM_LEN + 1) == m.lane then return m end
  -- One of the two is not what it was: the claim, if it names no lane that has something in flight.
  if not lane_of_claim(held) then return m end
end

-- Removes the claim of a message.
local function end_claim(m)
  remove('HDEL', claim, m.id)
  remove('ZREM', lease, m.id)
  increment(counts, '#in_flight', -1)
  increment(counts, 'f' .. m.lane, -1)
end

-- A claim that nobody settled: counted, and under suspicion. What was lost before had been claimed alone.
local LOST, ALONE = 8, 2
local function lose_lease(m, held, why)
  local was_alone = m.lost > 0 or (held and held:byte(25) == ALONE)
  end_claim(m)
  record_attempt(m, six(now) .. char(LOST) .. pack('>I2', #why) .. why, 1, 1)
  m.lost = was_alone and 2 or 1
  put(m)
end

-- A message that cannot be read becomes a dead letter with what is packed as its body, so that the totals balance and somebody
-- sees it. It is not replayed: nobody knows what it said.
local DAMAGED, FAILED, BYTES, USUAL_RANK = 4, 7, 2, 5
local UNREADABLE = 'what Redis holds of it cannot be read: something else wrote there; the body is what was found'
local UNKNOWN = 'unknown'
-- As a head has it that says nothing but the topic.
local UNKNOWN_TOPIC = pack('>I4', 2 + #UNKNOWN) .. char(1, #UNKNOWN) .. UNKNOWN
local function set_aside(id, lane, due, packed, maybe)
  lane = lane or ('q' .. UNKNOWN)
  local is_sink = lane:sub(1, 1) == 's'
  local m = {
    id = id, state = DEAD, rank = USUAL_RANK, kind = BYTES, lost = 0, maybe = maybe, sink = is_sink and 1 or 0, due = due, ready = due,
    -- So the same message sent again is a duplicate.
    hash = #packed >= 16 and packed:sub(9, 16) or ('\0'):rep(8),
    lane = lane, lane_text = lane:sub(2), accepted = '', head = is_sink and UNKNOWN_TOPIC or '', body = packed,
  }
  for field, value in pairs(NO_LIFE) do m[field] = value end
  m.ended, m.reason = now, DAMAGED
  record_attempt(m, six(now) .. char(FAILED) .. pack('>I2', #UNREADABLE) .. UNREADABLE, 0, maybe)
  add('ZADD', dead, 0, due .. id)
  add('HSET', msg, id, close(m))
  increment(counts, '#dead', 1)
  increment(counts, 'd' .. lane, 1)
end

-- A damaged message may still name its lane.
local function lane_of_message(packed)
  if packed and #packed > 17 then
    local kind = floor(packed:byte(2) / 32) % 2 == 1 and 's' or 'q'
    return counted_lane(kind .. packed:sub(18, 17 + packed:byte(17)))
  end
end

-- The same for one that is claimed. While its lane counts it as in flight, no other node gets the shard of that lane.
local function set_aside_claimed(id, held, packed, maybe)
  local lane = lane_of_claim(held) or lane_of_message(packed)
  remove('HDEL', claim, id)
  remove('ZREM', lease, id)
  increment(counts, '#in_flight', -1)
  if lane then increment(counts, 'f' .. lane, -1) end
  set_aside(id, lane, held and #held >= CLAIM_LEN and held:sub(35, 40) or six(now), packed or '', maybe)
end
