-- Logs: units, each with its moment, in a sorted set, one member for each, scored by the moment. And those of
-- identifiers that are audited, which stand beside counters; README.md is the contract.

-- Two values each, and a Lua function takes fewer than 8,000.
local UNITS_AT_ONCE = 1000
-- In the log of an audited identifier, a member that is no unit. Its score is a moment: of all after it, the log has
-- every unit.
local SINCE = 'since'
-- Two more are named by a window's number, and remember what its counter held: their score is so far below this,
-- and so below all moments.
local NONE = -1

-- What each demand of the call is counted in. Empty where none has a log: then nothing of this is made.
local kinds = ARGV[2]
local with_logs = kinds ~= ''
local kind_of, fault, add_units, read_log, add_to_log

if with_logs then
  -- That of the demand in this place of the call.
  function kind_of(place)
    return sub(kinds, place, place)
  end

  -- The text of what pcall caught.
  function fault(caught)
    return type(caught) == 'table' and caught.err or tostring(caught)
  end

  -- Adds units with the serials after `serial` up to `last`.
  function add_units(key, moment, serial, last, name)
    while serial < last do
      local members = {}
      for place = 1, 2 * min(UNITS_AT_ONCE, last - serial), 2 do
        serial = serial + 1
        members[place], members[place + 1] = moment, format(name, moment, serial)
      end
      call('ZADD', key, unpack(members))
    end
  end

  -- What the log of the window of this number tells at `moment`, beside its counters: `since`, the moment after
  -- which it has every unit, none if they do not hold what it remembers of them; and if it can tell, `exact`, the
  -- units admitted in the `length` up to `moment`. Where neither counters nor log are, no unit can be missing.
  function read_log(key, moment, length, number, current, previous)
    local log = {
      key = key, moment = moment, from = max(moment - length, NONE), current = current, previous = previous,
      number = number, before = format('%.0f', number - 1),
    }
    local found = call('ZMSCORE', key, SINCE, number, log.before)
    if current == NONE - (tonumber(found[2]) or NONE) and previous == NONE - (tonumber(found[3]) or NONE) then
      log.since = tonumber(found[1]) or log.from
      log.exact = log.since <= log.from and call('ZCOUNT', key, format('(%.0f', log.from), '+inf')
    end
    return log
  end

  -- Adds units admitted at the moment at which the log was read, drops those that have left, and sets the time to
  -- live. A log that has `most` units takes no more, and cannot tell until these have left.
  function add_to_log(log, units, most, expire, time)
    local key, moment, since = log.key, log.moment, nil
    if log.since then
      since = max(log.since, log.from)
      call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', log.from))
    else
      -- A clock may have been set back: what it had of later moments goes too.
      since = max(moment, tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]) or moment)
      call('DEL', key)
    end
    call('ZADD', key, format('%.0f', since), SINCE, format('%.0f', NONE - log.current - units), log.number,
      format('%.0f', NONE - log.previous), log.before)
    call(expire, key, time)
    local room = most + 3 - call('ZCARD', key)
    if units > room then
      units, since = room, max(since, moment)
      call('ZADD', key, format('%.0f', since), SINCE)
    end
    -- The serials of a moment have no gap: what is given back are the highest.
    local serial = call('ZCOUNT', key, moment, moment) - (since == moment and 1 or 0)
    add_units(key, moment, serial, serial + units, '%.0f-%06d')
  end
end
